"""Training with each way to sum gradients, in real processes: the same steps, the same bits on all workers."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import nn

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.planning.exchanges.exchange_time import all_reduce_cost
from equipoise.registries.all_reduce_registry import ALL_REDUCE_ALGORITHMS, list_runnable_algorithms
from equipoise.training.gradient_sync import GradientAllReduce, SumTraffic
from equipoise.training.loop import Training
from tests.support.errors import raises_code
from tests.support.gloo import run_with_gloo
from tests.unit.training.test_loop import max_relative_difference, train_model

ROOT = Path(__file__).parents[3]  # not from tests.support.ray_cluster: workers would import Ray
FP64 = TrainConfig(workload="digits", batch_size=8, target=2.0, max_examples=240, eval_every=240, precision="fp64")
FP32 = replace(FP64, precision="fp32")


@pytest.fixture(scope="module")
def rendezvous_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("gloo")


def train_with_all(config):
    """Return the final weights, the laps and the sizes of buckets of a run with each way to sum gradients."""
    results = {}
    for name in [*list_runnable_algorithms(config.workers), "backend", "auto"]:
        training = Training(replace(config, all_reduce=name))
        laps = list(training.laps())
        sizes = [bucket.flat_gradients.nbytes for bucket in training.gradient_sync.buckets]
        results[name] = training.model.state_dict(), laps, sizes
    return results


@pytest.mark.parametrize("workers", [2, 3])
def test_runs_with_all_algorithms_take_the_steps_of_one_worker(rendezvous_folder, workers):
    config = replace(FP64, workers=workers)
    first, *others = run_with_gloo(workers, rendezvous_folder, train_with_all, config)
    accumulated, _ = train_model(replace(FP64, grad_accumulation=workers))
    assert {*first} == {*list_runnable_algorithms(workers), "backend", "auto"}
    for name, (weights, laps, sizes) in first.items():
        assert max_relative_difference(weights, accumulated) <= 1e-13, name
        for other in others:
            assert all(torch.equal(value, other[name][0][key]) for key, value in weights.items()), name
            assert [(lap.all_reduce, lap.loss) for lap in other[name][1]] == [
                (lap.all_reduce, lap.loss) for lap in laps
            ]
        for lap in laps:
            assert name == "auto" or lap.all_reduce == (name,) * len(sizes)
            assert_traffic_is_that_of_closed_forms(
                SumTraffic(lap.sent_bytes, lap.rounds), lap.all_reduce, sizes, workers
            )


def assert_traffic_is_that_of_closed_forms(traffic, algorithms, sizes, workers):
    """Compare the bytes and rounds of a step with the sums of closed forms over buckets."""
    backend = ["direct" if size * workers <= 1 << 18 else "ring" for size in sizes]  # small ones go to all at once
    names = [other if name == "backend" else name for name, other in zip(algorithms, backend, strict=True)]
    costs = [all_reduce_cost(name, workers, size) for name, size in zip(names, sizes, strict=True)]
    assert traffic.rounds == sum(cost.rounds for cost in costs)
    assert traffic.sent_bytes == pytest.approx(sum(cost.max_sent_bytes for cost in costs), abs=8 * workers)


def count_traffic_with_all(counts):
    """Return the traffic of a step with each way to sum buckets of so many numbers."""
    workers, results = dist.get_world_size(), {}
    for name in [*list_runnable_algorithms(workers), "backend"]:
        parameters = [nn.Parameter(torch.zeros(count)) for count in counts]
        results[name] = GradientAllReduce(parameters, workers, name).traffic
    return results


def test_traffic_of_several_buckets_is_that_of_the_worker_that_sends_most(rendezvous_folder):
    counts = [100, 300_000]  # of floats: a bucket for each, of which the first is summed last
    results = run_with_gloo(3, rendezvous_folder, count_traffic_with_all, counts)
    assert all(result == results[0] for result in results)
    for name, traffic in results[0].items():
        assert_traffic_is_that_of_closed_forms(traffic, [name] * 2, [4 * count for count in counts], 3)


def sum_with_mixed_algorithms(counts, choices):
    """Return the gradients after two steps with each choice of an algorithm for each bucket."""
    rank, workers, results = dist.get_rank(), dist.get_world_size(), []
    for algorithms in choices:
        parameters = [nn.Parameter(torch.zeros(count)) for count in counts]
        gradient_sync = GradientAllReduce(parameters, workers, "auto")
        gradient_sync.set_algorithms(algorithms)
        for step in range(2):
            gradient_sync.begin_last_micro_batch(None)
            sum((rank + step + 1) * (index + 1) * p.sum() for index, p in enumerate(parameters)).backward()
            gradient_sync.launch_remaining()
            gradient_sync.wait_for_sums()
            results.append([parameter.grad.unique().tolist() for parameter in parameters])
            for parameter in parameters:
                parameter.grad = None
    return results


def test_buckets_of_one_step_may_be_summed_in_different_ways(rendezvous_folder):
    counts = [100, 300_000, 300_000, 300_000]  # of floats: buckets of 1.2 MB, of 2.4 MB and 100 numbers
    choices = [("backend", "tree"), ("ring", "backend"), ("direct", "sharded-root"), ("backend", "backend")]
    for results in run_with_gloo(3, rendezvous_folder, sum_with_mixed_algorithms, counts, choices):
        for step, gradients in enumerate(results):
            assert gradients == [[(6.0 + 3 * (step % 2)) * index] for index in (1, 2, 3, 4)]


def test_lap_of_one_worker_sends_nothing():
    lap = next(Training(replace(FP32, all_reduce="ring")).laps())
    assert (lap.all_reduce, lap.sent_bytes, lap.rounds) == ((), 0, 0)


def train_and_resume_chosen(config):
    """Return, for two choices of `auto`, weights and laps of a run and of the same run after an interruption."""
    results = {}
    for algorithm in ("ring", "tree"):
        training = Training(config)
        training.gradient_sync.set_algorithms([algorithm] * len(training.gradient_sync.buckets))
        laps = training.laps()
        next(laps)
        state, finished_laps = load(save(training.state_dict())), list(training.finished_laps)
        for _ in laps:
            pass
        resumed = Training(config)
        resumed.load_state_dict(state, finished_laps)
        for _ in resumed.laps():
            pass
        results[algorithm] = [(run.model.state_dict(), run.finished_laps) for run in (training, resumed)]
    return results


def test_resumed_run_sums_as_auto_chose_before(rendezvous_folder):
    config = replace(FP32, workers=3, all_reduce="auto", eval_every=120)
    results = run_with_gloo(3, rendezvous_folder, train_and_resume_chosen, config)
    for result in results:
        for algorithm, ((weights, laps), (resumed, resumed_laps)) in result.items():
            assert all(torch.equal(value, resumed[name]) for name, value in weights.items())
            assert [lap.loss for lap in laps] == [lap.loss for lap in resumed_laps] and len(laps) == 2
            assert {name for lap in resumed_laps for name in lap.all_reduce} == {algorithm}
        (ring, _), (tree, _) = (runs[0] for runs in result.values())
        # rounding on three workers depends on the algorithm: another one after the interruption would show
        assert any(not torch.equal(value, tree[name]) for name, value in ring.items())


def resume_after_other_laps(config):
    """Return the algorithms and the laps after those of one worker more, and of buckets that are not these."""
    training = Training(config)
    training.gradient_sync.set_algorithms(["ring"] * len(training.gradient_sync.buckets))
    next(training.laps())
    lap, runs = training.finished_laps[-1], []
    for other_lap in (replace(lap, workers=lap.workers + 1), replace(lap, all_reduce=("ring", *lap.all_reduce))):
        resumed = Training(config)
        resumed.load_state_dict(training.state_dict(), [other_lap])
        before = resumed.gradient_sync.algorithms
        next(resumed.laps())
        runs.append((before, resumed.finished_laps))
    return runs


def test_auto_chooses_again_for_other_workers_or_buckets(rendezvous_folder):
    config = replace(FP32, workers=2, all_reduce="auto", eval_every=120)
    results = run_with_gloo(2, rendezvous_folder, resume_after_other_laps, config)
    for first, second, workers, surplus in zip(*results, [3, 2], [0, 1], strict=True):
        assert first[0] == () and first[1][-1].all_reduce == second[1][-1].all_reduce
        assert [lap.workers for lap in first[1]] == [workers, 2]
        assert len(first[1][-1].all_reduce) == len(first[1][0].all_reduce) - surplus
        assert {*first[1][-1].all_reduce} <= {"backend", *ALL_REDUCE_ALGORITHMS}


def refuse_training(config, nodes):
    """Return the code of the refusal to train on workers of these nodes, and its sentence."""
    os.environ["NODE_RANK"] = str(nodes[dist.get_rank()])
    try:
        Training(config)
    except EquipoiseError as error:
        return error.code, str(error)
    return None


@pytest.mark.parametrize(
    ("algorithm", "nodes", "sentence"),
    [
        ("two-level", [0, 0, 1], "it needs as many workers on each node"),
        ("doubling", [0, 0, 0], "it needs 2, 4, 8, ... workers"),
    ],
)
def test_algorithm_that_the_workers_cannot_run_is_refused_before_training(
    rendezvous_folder, algorithm, nodes, sentence
):
    config = replace(FP32, workers=4, all_reduce=algorithm)  # an elastic run that has three of them
    for code, text in run_with_gloo(3, rendezvous_folder, refuse_training, config, nodes):
        assert code == "all-reduce-unusable" and sentence in text and "ring" in text


@pytest.mark.parametrize("name", ["doubling", "halving-doubling"])
def test_options_with_an_algorithm_for_other_numbers_of_workers_are_refused(name):
    assert replace(FP32, workers=4, all_reduce=name).all_reduce == name
    with raises_code("all-reduce-unusable", f"over 3 workers by {name}", "binary-blocks"):
        replace(FP32, workers=3, all_reduce=name)


def test_unknown_algorithm_and_one_for_a_command_are_refused():
    with raises_code("option-choice", "--all-reduce must be one of backend, auto, ring"):
        replace(FP32, all_reduce="star")
    with raises_code("option-conflict", "--all-reduce has no effect on a --command"):
        TrainConfig(command="train {lr}", all_reduce="ring")


TRAIN_BY_DEFAULT = """
import sys
import torch.distributed as dist
from equipoise.config import TrainConfig
from equipoise.training.loop import laps

dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=int(sys.argv[1]), world_size=2)
config = TrainConfig(workload="digits", workers=2, batch_size=8, max_examples=32, target=2.0)
assert [lap.sent_bytes > 0 for lap in laps(config)] == [True]
print([name for name in sys.modules if name.startswith(("equipoise.parallel", "equipoise.compression"))])
dist.barrier()
dist.destroy_process_group()
"""


def test_default_path_imports_no_algorithm(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", TRAIN_BY_DEFAULT]
    processes = [
        subprocess.Popen([*command, str(rank), tmp_path / "rendezvous"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    assert [process.communicate(timeout=120)[0].strip() for process in processes] == ["[]", "[]"]
