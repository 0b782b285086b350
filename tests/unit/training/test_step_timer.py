"""Laps have the seconds of each worker where they differ, from the one sum over workers that a lap takes anyway."""

from dataclasses import replace

import pytest
import torch

from equipoise.config import TrainConfig
from equipoise.energy_meters.worker_meter import open_worker_meter
from equipoise.training.step_timer import StepTimer
from jobs.timing.step_bench import summarize_joules, summarize_seconds_by_worker
from tests.support.rapl_zones import count_joules, write_rapl_zone

CONFIG = TrainConfig(workload="digits", workers=3)


def finish_laps(compute_seconds):
    """Return the lap of workers that computed for so long, and how many sums over workers it took."""
    tables: list[torch.Tensor] = []

    def build_timer(rank):
        timer = StepTimer(CONFIG, rank, len(compute_seconds), torch.device("cpu"))
        timer.spans += [("lap", 0.0, 6.0), ("compute", 1.0, 1.0 + compute_seconds[rank]), ("exchange", 5.0, 5.5)]
        return timer

    def keep(tensor):
        tables.append(tensor)
        return tensor

    for rank in range(len(compute_seconds)):
        build_timer(rank).finish_lap(torch.zeros(2), 2, 0.1, keep)
    assert len(tables) == len(compute_seconds)
    lap, _ = build_timer(0).finish_lap(torch.zeros(2), 2, 0.1, lambda _: torch.stack(tables).sum(0))
    return lap


def test_a_lap_has_the_seconds_of_each_worker_where_one_is_slow():
    lap = finish_laps((1.0, 1.05, 3.0))
    assert lap.seconds_by_worker == pytest.approx((1.0, 1.05, 3.0)) and lap.compute_seconds == 3.0
    assert finish_laps((1.0, 1.05, 1.02)).seconds_by_worker == ()
    assert finish_laps((2.0,)).seconds_by_worker == ()


@pytest.mark.parametrize(("watts", "joules"), [(None, 40.0 * 5.0 / 6.0), (250.0, 250.0 * 5.0)])
def test_energy_of_a_lap_leaves_out_the_noise_scale_and_may_be_assumed(tmp_path, watts, joules):
    counter = write_rapl_zone(tmp_path, "intel-rapl:0", "package-0")
    timer = StepTimer(replace(CONFIG, watts=watts), 0, 1, torch.device("cpu"))
    timer.meter = open_worker_meter(torch.device("cpu"), 0, tmp_path)
    count_joules(counter, 7.0)
    timer.begin_lap()
    timer.spans += [("lap", 0.0, 6.0), ("probe", 2.0, 3.0)]
    count_joules(counter, 40.0)
    lap, _ = timer.finish_lap(torch.zeros(2), 2, 0.1, lambda tensor: tensor)
    assert lap.seconds == 5.0 and lap.joules == pytest.approx(joules)


def test_lap_of_a_machine_without_counters_has_no_energy():
    assert finish_laps((1.0, 1.0)).joules is None


def test_a_span_inside_another_is_taken_off_it():
    timer = StepTimer(CONFIG, 0, 1, torch.device("cpu"))
    timer.spans.append(("compute", 1.0, 3.0))
    end = timer.record_inner_span("exchange", "compute", timer.mark())
    assert timer.spans[1][2] == end
    seconds = timer.pop_seconds()
    assert seconds["exchange"] > 0 and seconds["compute"] + seconds["exchange"] == pytest.approx(2.0)


def test_step_times_have_the_median_of_each_worker_where_one_is_slow():
    laps = [finish_laps(seconds) for seconds in ((1.0, 1.0, 3.0), (1.0, 1.05, 1.02), (1.1, 1.0, 3.2))]
    assert summarize_seconds_by_worker([[lap] for lap in laps]) == pytest.approx((0.525, 0.5, 1.5))
    assert summarize_seconds_by_worker([laps[:2]]) == pytest.approx((2.05 / 4, 2.05 / 4, 4.05 / 4))
    assert summarize_seconds_by_worker([[laps[1]]] * 3) == ()


def test_an_inner_span_is_taken_from_the_one_around_it():
    timer = StepTimer(CONFIG, 0, 1, torch.device("cpu"))
    start = timer.mark()
    timer.record_inner_span("exchange", "compute", timer.mark())
    end = timer.record_span("compute", start)
    seconds = timer.pop_seconds()
    assert seconds["compute"] + seconds["exchange"] == pytest.approx(end - start) and seconds["exchange"] > 0
    assert not timer.pop_seconds()


def test_joules_of_a_step_are_measured_in_all_laps_or_unknown():
    lap = replace(finish_laps((1.0,)), joules=8.0)
    stretches = [[lap, lap], [replace(lap, joules=12.0)], [replace(lap, joules=20.0)]]
    assert summarize_joules(CONFIG, stretches) == 6.0  # of two steps in each lap
    assert summarize_joules(CONFIG, [[lap], [replace(lap, joules=None)]]) is None
    assert summarize_joules(replace(CONFIG, watts=100.0), stretches) is None  # assumed, not measured
