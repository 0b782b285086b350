"""What a lap says of all workers, from what each of them measured: sums, means, largest values, norms."""

from dataclasses import replace

import pytest
import torch

from equipoise.config import TrainConfig
from equipoise.training.step_timer import StepTimer

CONFIG = TrainConfig(workload="digits", workers=2, batch_size=8, grad_accumulation=3)
CPU = torch.device("cpu")
SPANS = {"lap": 6.0, "data": 0.5, "compute": 4.0, "exchange": 0.25}


def finish_lap(workers, config=CONFIG, step=5, lr=0.1):
    """Return the lap and the losses of workers, each of which is a mapping of what it measured."""
    tables = []

    def build_timer(rank):
        worker = workers[rank]
        timer = StepTimer(config, rank, len(workers), CPU)
        timer.spans += [(name, 1.0, 1.0 + took) for name, took in (SPANS | worker.get("spans", {})).items()]
        timer.peak_bytes = worker.get("peak")
        timer.gradient_norms.is_of_micro_batch = worker.get("is_of_micro_batch", False)
        for local, total in worker.get("norms", []):
            timer.gradient_norms.add_draw(torch.tensor(local), torch.tensor(total))
        return timer

    for rank, worker in enumerate(workers):
        losses = torch.tensor(worker.get("losses", [0.0, 0.0]))
        build_timer(rank).finish_lap(losses, step, lr, lambda shared: tables.append(shared.clone()) or shared)
    return build_timer(0).finish_lap(torch.zeros(2), step, lr, lambda _: torch.stack(tables).sum(0))


def test_losses_are_summed_and_examples_counted():
    lap, losses = finish_lap([{"losses": [1.0, 2.0]}, {"losses": [3.0, 5.0]}])
    assert losses.tolist() == [4.0, 7.0] and lap.loss == 5.5
    assert (lap.step, lap.steps, lap.workers, lap.lr) == (5, 2, 2, 0.1)
    assert (lap.seen, lap.examples, lap.global_batch) == (5 * 48, 2 * 48, 48)
    assert (lap.draws, lap.local_norm, lap.peak_bytes, lap.encode_seconds) == (0, None, None, None)


def test_seconds_are_those_of_the_slowest_worker_in_each_part():
    lap, _ = finish_lap([{"spans": {"data": 2.0, "probe": 1.5}}, {"spans": {"exchange": 3.0, "probe": 1.0}}])
    assert lap.seconds == pytest.approx(5.0)  # without the measurements of the noise scale
    assert (lap.data_seconds, lap.compute_seconds, lap.exchange_seconds) == pytest.approx((2.0, 4.0, 3.0))


def test_seconds_of_workers_that_do_not_wait_are_means():
    config = replace(CONFIG, sync="async:2")
    lap, _ = finish_lap([{"spans": {"compute": 2.0}}, {"spans": {"compute": 6.0, "lap": 8.0}}], config)
    assert (lap.compute_seconds, lap.seconds, lap.seconds_by_worker) == (4.0, 7.0, ())
    waiting, _ = finish_lap([{"spans": {"compute": 2.0}}, {"spans": {"compute": 6.0}}], replace(CONFIG, sync="async:0"))
    assert (waiting.compute_seconds, waiting.seconds_by_worker) == (6.0, (2.0, 6.0))


@pytest.mark.parametrize(("slowest", "is_told"), [(4.375, False), (4.5, True)])
def test_workers_differ_from_a_tenth_on(slowest, is_told):
    lap, _ = finish_lap([{}, {"spans": {"compute": slowest}}])
    assert lap.seconds_by_worker == ((4.0, slowest) if is_told else ())


def test_encoding_is_told_where_there_is_some_and_the_largest_peak_counts():
    lap, _ = finish_lap([{"spans": {"encode": 0.5}, "peak": 300}, {"spans": {"encode": 0.75}, "peak": 700}])
    assert (lap.encode_seconds, lap.peak_bytes) == (0.75, 700)
    assert finish_lap([{"spans": {"encode": 0.0}}, {}])[0].encode_seconds == 0
    assert finish_lap([{"peak": None}, {"peak": 9}])[0].peak_bytes == 9


def test_norms_of_a_worker_are_scaled_to_its_own_mean():
    norms = [(1.0, 0.5), (2.0, 0.25)]
    lap, _ = finish_lap([{"norms": norms}, {"norms": [(3.0, 0.5), (4.0, 0.25)]}])
    # a worker has three of six micro-batches: its part of the mean is half of its own
    assert lap.local_norm == pytest.approx(4 * (3.0 + 7.0) / 2 / 2) and lap.total_norm == pytest.approx(0.75 / 2)
    assert (lap.local_batch, lap.total_batch, lap.draws) == (pytest.approx(24), 48, 2)
    single = {"norms": norms, "is_of_micro_batch": True}
    lap, _ = finish_lap([single, single])
    assert lap.local_norm == pytest.approx(36 * 1.5) and (lap.local_batch, lap.total_batch) == (8, 48)


def test_unequal_shares_of_the_micro_batches_have_a_harmonic_mean():
    config = TrainConfig(workload="digits", workers=3, batch_size=12)
    lap, _ = finish_lap([{"norms": [(1.0, 0.5)]}, {"norms": [(1.0, 0.5)]}], config)
    assert lap.local_norm == pytest.approx((3**2 + 1.5**2) / 2)
    assert lap.local_batch == pytest.approx(12 / ((1 + 1 / 2) / 2)) and lap.total_batch == 36


@pytest.mark.parametrize(("batch", "sizes"), [(8, (4, 8)), (9, (4, 8)), (2, (1, 2))])
def test_one_worker_compares_the_halves_of_a_batch(batch, sizes):
    config = TrainConfig(workload="digits", batch_size=batch)
    lap, _ = finish_lap([{"norms": [(3.0, 1.0), (5.0, 3.0)]}], config)
    assert (lap.local_norm, lap.total_norm, lap.draws) == (4.0, 2.0, 2)
    assert (lap.local_batch, lap.total_batch) == sizes


def test_norms_that_are_not_finite_are_left_out():
    lap, _ = finish_lap([{"norms": [(1.0, 0.5)]}, {"norms": [(float("inf"), 0.5)]}])
    assert (lap.local_norm, lap.total_norm, lap.draws) == (None, None, 0)


def test_norms_are_those_since_the_last_lap():
    timer = StepTimer(TrainConfig(workload="digits"), 0, 1, CPU)
    timer.gradient_norms.add_draw(torch.tensor(1.0), torch.tensor(2.0))
    timer.gradient_norms.add_draw(torch.tensor(3.0), torch.tensor(5.0))
    assert timer.gradient_norms.pop_sums() == (4.0, 7.0, 2) and timer.gradient_norms.pop_sums() == (0.0, 0.0, 0)
