"""--sharding optimizer and full: the steps of whole models in every worker, with less of them in each."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from equipoise.training.sharding.optimizer.weight_owners import gather_traffic
from tests.support.errors import raises_code
from tests.support.gloo import run_with_gloo
from tests.support.sharded_runs import ShardedRun, are_equal, largest_difference, train_parts, train_sharded

MLP = TrainConfig(
    workload="tests.support.sharded_workloads:wide_mlp",
    batch_size=4,
    workers=4,
    target=2.0,
    max_examples=160,
    eval_every=80,
    precision="fp64",
    noise_scale_every=1,
)
ADAMW = {"optimizer": "adamw", "lr": 0.002, "weight_decay": 0.1, "decay_on": "matrices", "schedule": "cosine"}
GPT = {"workload": "tests.support.sharded_workloads:gpt", "target": 0.0}
CASES = {
    "mlp": {"clip_norm": 0.5, "weight_decay": 0.01},
    "gpt-adamw": GPT | ADAMW | {"grad_accumulation": 2},
    "gpt": GPT | {"optimizer": "sgd"},
    "mlp-adamw": ADAMW | {"clip_norm": 0.1, "grad_accumulation": 3},
    "lenet": {"workload": "digits", "weight_decay": 0.01, "decay_on": "matrices", "clip_norm": 0.5},
    "lenet-adamw": {"workload": "digits", "freeze_stages": 1, "body_lr_scale": 0.3, "grad_accumulation": 2} | ADAMW,
}
KINDS = "none", "optimizer", "full", "full:2"
FAST_CASES = "mlp", "gpt-adamw"


def with_kinds(config, kinds=KINDS):
    return [replace(config, sharding=kind) for kind in kinds]


def train_kinds(folder, processes, configs, kinds):
    """Train each configuration with all kinds of sharding; return the runs by configuration."""
    runs = iter(
        train_sharded(processes, folder, [changed for config in configs for changed in with_kinds(config, kinds)])
    )
    return [[next(runs) for _ in kinds] for _ in configs]


def require_same_steps(run, alone, whole):
    """Require the steps of one process up to rounding, and the noise scale of whole models."""
    assert largest_difference(run.state, alone.state) <= 1e-13
    assert largest_difference(run.state, alone.state, "optimizer.") <= 1e-10
    for lap, alone_lap, whole_lap in zip(run.laps, alone.laps, whole.laps, strict=True):
        assert (lap.loss, lap.metric) == pytest.approx((alone_lap.loss, alone_lap.metric), rel=1e-11)
        assert lap.total_norm == pytest.approx(whole_lap.total_norm, rel=1e-9) and lap.draws == whole_lap.draws
        if lap.local_batch == whole_lap.local_batch:
            assert lap.local_norm == pytest.approx(whole_lap.local_norm, rel=1e-9)


@pytest.fixture(scope="module")
def pairs_of_workers(tmp_path_factory):
    """Short runs of two workers, by case and kind of sharding."""
    configs = [replace(MLP, workers=2, max_examples=40, eval_every=20, **CASES[name]) for name in FAST_CASES]
    folder = tmp_path_factory.mktemp("gloo")
    by_case = train_kinds(folder, 2, configs, KINDS[:3])
    return {name: dict(zip(KINDS[:3], runs, strict=True)) for name, runs in zip(FAST_CASES, by_case, strict=True)}


@pytest.mark.parametrize("kind", KINDS[1:3])
def test_sharded_workers_take_the_steps_of_one_process(pairs_of_workers, kind):
    for name, runs in pairs_of_workers.items():
        (alone,) = train_parts_alone(replace(MLP, workers=2, max_examples=40, eval_every=20, **CASES[name]))
        require_same_steps(runs[kind], alone, runs["none"])


def train_parts_alone(config):
    """Train in this process."""
    return [ShardedRun(part.tensors, laps) for part, laps in train_parts([config], [None], None)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "steps"), [(4, 10), *(pytest.param(n, 50, marks=pytest.mark.thorough) for n in (2, 3, 4))]
)
def test_sharded_workers_take_many_steps_of_one_process(tmp_path, processes, steps):
    kinds = KINDS if processes == 4 else KINDS[:3]
    configs = [replace(MLP, **changes) for changes in CASES.values()]
    configs = [replace(config, max_examples=steps * config.global_batch, eval_every=1000) for config in configs]
    alone = train_sharded(1, tmp_path, configs)
    for runs, expected in zip(train_kinds(tmp_path, processes, configs, kinds), alone, strict=True):
        for run in runs:
            require_same_steps(run, expected, runs[0])


@pytest.mark.slow
def test_local_norms_of_full_sharding_are_those_of_micro_batches(tmp_path):
    config = replace(MLP, workers=2, grad_accumulation=2)
    whole, sharded = train_sharded(2, tmp_path, with_kinds(config, ("none", "full")))
    (apart,) = train_sharded(4, tmp_path, [replace(config, workers=4, grad_accumulation=1)])
    assert (whole.laps[0].local_batch, sharded.laps[0].local_batch) == (8, 4)
    assert whole.laps[0].total_norm == pytest.approx(sharded.laps[0].total_norm)
    # half of the micro-batches, whose norms are twice as far from their mean at the most
    assert sharded.laps[0].local_norm == pytest.approx(apart.laps[0].local_norm, rel=0.5)


OTHER_CASES = {
    "batch-norm": {"workload": "tests.support.workloads:with_batch_norm", "channels_last": True, "keep": "best"},
    "channels-last": {"workload": "tests.support.workloads:with_convolutions", "channels_last": True},
    "adapters": {"workload": "tests.support.sharded_workloads:with_adapters"},
    "unused": {"workload": "tests.support.workloads:with_unused", "weight_decay": 0.1},
    "score": {"workload": "tests.support.any_workloads:table", "target": None},
    "dicts": {"workload": "tests.support.any_workloads:sentences", "target": 0.0},
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in OTHER_CASES])
def test_other_models_take_the_steps_of_whole_ones(tmp_path, name):
    config = replace(MLP, workers=2, grad_accumulation=2, **OTHER_CASES[name])
    whole, *others = train_sharded(2, tmp_path, with_kinds(config, KINDS[:3]))
    for run in others:
        assert largest_difference(run.state, whole.state) <= 1e-13
        assert run.laps[-1].metric == pytest.approx(whole.laps[-1].metric, rel=1e-9)
        assert any(key.startswith("best.") for key in run.state) == (config.keep == "best")


def test_bytes_are_those_of_the_closed_forms(pairs_of_workers):
    for name, micro_batches in (("mlp", 1), ("gpt-adamw", 2)):
        none, optimizer, full = pairs_of_workers[name].values()
        sizes = [value.nbytes for key, value in none.state.items() if key.startswith("model.")]
        size = sum(sizes)
        assert none.laps[0].sent_bytes == size
        # each of the two sends the other what it updates, in parts that are as equal as the tensors allow
        sent = optimizer.laps[0].sent_bytes - size
        assert size / 2 <= sent <= max(max(sizes), size * 0.51)
        assert optimizer.laps[0].rounds == none.laps[0].rounds + 1
        padding = 8 * 16 if name == "gpt-adamw" else 0  # to an even number of rows, of the embedding of 11 tokens
        assert full.laps[0].sent_bytes == 3 / 2 * (size + padding) * micro_batches
        assert full.laps[1].sent_bytes == full.laps[0].sent_bytes  # the evaluation between them is no part of a step


@pytest.mark.slow
def test_bytes_of_replicas_and_padded_rows_are_those_of_the_closed_forms(tmp_path):
    config = replace(MLP, precision="fp32", grad_accumulation=2)
    full, replicas = train_sharded(4, tmp_path, with_kinds(config, ("full", "full:2")))
    shapes = [value.shape for name, value in full.state.items() if name.startswith("model.")]
    padded = [4 * sum(-(-shape[0] // p) * p * shape[1:].numel() for shape in shapes) for p in (4, 2)]
    assert full.laps[0].sent_bytes == 2 * 3 * padded[0] * 3 / 4
    # the sum over two replicas, once in a step, of half of the gradient
    assert replicas.laps[0].sent_bytes == 2 * 3 * padded[1] / 2 + 2 / 2 * padded[1] / 2


@pytest.mark.parametrize("workers", range(2, 10))
def test_each_part_is_received_by_all_other_workers(workers):
    assert gather_traffic([8] * workers).sent_bytes == 8 * (workers - 1)
    assert gather_traffic([8] + [0] * (workers - 1)) == gather_traffic([8] * workers)  # of the worker that sends most


def resume_kinds(folder, configs, processes, resumed_processes):
    """Resume the first laps of runs under the same and under other kinds; return both, and whole runs."""
    halves = train_sharded(processes, folder, configs, num_laps=1)
    assert all(half.state.keys() == halves[0].state.keys() for half in halves)
    # twice in the same processes, first as they were
    resumed = train_sharded(processes, folder, [*configs, *configs], [*halves, *halves[1:], halves[0]])
    same, others = resumed[: len(configs)], resumed[len(configs) :]
    for count in resumed_processes:
        others += train_sharded(count, folder, configs, [*halves[1:], halves[0]])
    return same, others


def test_a_checkpoint_goes_on_under_another_sharding(tmp_path, pairs_of_workers):
    config = replace(MLP, workers=2, max_examples=40, eval_every=20, **CASES["gpt-adamw"])
    same, others = resume_kinds(tmp_path, with_kinds(config, KINDS[1:3]), 2, ())
    whole = pairs_of_workers["gpt-adamw"]
    assert are_equal(same[0].state, whole["optimizer"].state) and are_equal(same[1].state, whole["full"].state)
    for run in others:
        assert largest_difference(run.state, whole["none"].state) <= 1e-13


@pytest.mark.slow
@pytest.mark.thorough
def test_a_checkpoint_of_4_workers_goes_on_in_3_and_in_1(tmp_path):
    config = replace(MLP, keep="best", **CASES["mlp-adamw"])
    configs = with_kinds(config, KINDS[:3])  # with unequal numbers of micro-batches on 3
    same, others = resume_kinds(tmp_path, configs, 4, (3, 1))
    whole = train_sharded(4, tmp_path, configs)
    assert all(are_equal(run.state, expected.state) for run, expected in zip(same, whole, strict=True))
    assert all(largest_difference(run.state, whole[0].state) <= 1e-13 for run in others)
    halves = train_sharded(4, tmp_path, with_kinds(config, ("full:2", "full")), num_laps=1)
    swapped = train_sharded(4, tmp_path, with_kinds(config, ("full", "full:2")), halves)
    assert all(largest_difference(run.state, whole[0].state) <= 1e-13 for run in swapped)


def train_kept(configs):
    """Return the kept weights of finished runs, their metric, and the largest part of the weights in a worker."""
    results = []
    for config in configs:
        training = Training(config)
        assert training.fits_in_memory()
        held = sum(value.numel() for value in training.sharded.list_weights().values())
        for _ in training.laps():
            pass
        training.load_kept_weights()
        metric = training.evaluate(training.workload.validation)
        results.append((training.model.state_dict(), metric, training.finished_laps, held))
    return results


def test_every_worker_ends_with_the_kept_weights_as_a_whole(tmp_path):
    config = replace(MLP, workers=2, max_examples=40, eval_every=20, keep="best", lr=0.3)
    for results in run_with_gloo(2, tmp_path, train_kept, with_kinds(config, KINDS[:3])):
        expected = results[0]
        for weights, metric, laps, _ in results:
            assert largest_difference(weights, expected[0], "") <= 1e-13
            assert metric == pytest.approx(max(lap.metric for lap in laps))
        assert results[2][-1] * 2 == results[0][-1] == results[1][-1]


def train_with_parts_of_the_state(config):
    """Return the largest difference from whole models, and the names of the state that this worker holds."""
    states = []
    for changed in with_kinds(config, ("none", "optimizer")):
        training = Training(changed)
        for _ in training.laps():
            pass
        states.append(training.state_dict())
    own = [name for name in states[1] if name.startswith("optimizer.")]
    assert all(torch.equal(states[0][name], value) for name, value in states[1].items())
    assert 0 < len(own) < sum(name.startswith("optimizer.") for name in states[0])
    dist.barrier()


@pytest.mark.slow
def test_optimizers_of_whole_matrices_and_scheduled_sums_run_with_parts_of_the_state(tmp_path):
    config = replace(MLP, workers=2, precision="fp32", all_reduce="halving-doubling")
    for optimizer in ("adafactor", "lars", "lamb"):
        run_with_gloo(2, tmp_path, train_with_parts_of_the_state, replace(config, optimizer=optimizer))


def refuse_single_numbers():
    config = replace(MLP, workers=2, workload="tests.support.sharded_workloads:with_scalar", sharding="full")
    with raises_code("sharding-unusable", "temperature", "--sharding optimizer"):
        Training(config)
    for kind in ("none", "optimizer"):
        next(Training(replace(config, sharding=kind)).laps())


@pytest.mark.slow
def test_weights_without_rows_are_refused(tmp_path):
    run_with_gloo(2, tmp_path, refuse_single_numbers)
