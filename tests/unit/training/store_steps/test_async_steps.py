"""Asynchronous steps in real processes: each run is the replay of its log, whatever the speeds of its workers."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load, save

from equipoise.config import TrainConfig
from equipoise.parameter_store.arrivals.lap_arrivals import parse_arrivals
from equipoise.training.loop import Training
from equipoise.training.store_steps.replay import largest_difference, replay_run
from tests.support.gloo import run_with_gloo

UNEQUAL = TrainConfig(
    workload="tests.support.workloads:with_unequal_speeds",
    sync="async:1",
    workers=6,
    batch_size=4,
    target=2.0,
    max_examples=144,
    eval_every=72,
    lr=0.05,
    precision="fp64",
)
ADAMW = {"optimizer": "adamw", "lr": 0.002, "schedule": "cosine", "clip_norm": 0.5}
WITH_DROPOUT = {"workload": "tests.support.workloads:with_dropout", "grad_accumulation": 2}


@pytest.fixture(scope="module")
def rendezvous_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("gloo")


def train_runs(configs):
    """Train each to the end, and return the state of a checkpoint, the log and the laps."""
    results = []
    for config in configs:
        training = Training(config)
        for _ in training.laps():
            pass
        # servers answer whoever asks for their state
        state = training.state_dict() if training.rank == 0 else None
        weights = {name: value.clone() for name, value in training.model.state_dict().items()}
        results.append((state, weights, training.steps.arrival_lines, training.finished_laps))
        if training.workers > 1:
            torch.distributed.barrier()
    return results


def train_interrupted(config):
    """Train to the end with a new start from a checkpoint after the first lap; return the state and the log."""
    interrupted = Training(config)
    next(interrupted.laps())
    states = [save(interrupted.state_dict()) if interrupted.rank == 0 else None]
    torch.distributed.broadcast_object_list(states)
    resumed = Training(config)
    resumed.load_state_dict(load(states[0]), interrupted.finished_laps)
    for _ in resumed.laps():
        pass
    weights = {name: value.clone() for name, value in resumed.model.state_dict().items()}
    return weights, interrupted.steps.arrival_lines + resumed.steps.arrival_lines


def parse_log(config, lines):
    return parse_arrivals("".join(lines).encode(), "the log", config.workers, config.sync_method.staleness)


def build_configs(processes, servers):
    """Return runs with some bounds of staleness, one of which has more workers than processes."""
    plain = replace(UNEQUAL, workers=processes, servers=servers)
    return [
        plain,
        replace(plain, sync="async:3", **ADAMW),
        replace(plain, sync="async:2", workers=processes + 2, **WITH_DROPOUT),
    ]


def select_floats(tensors):
    """Return all but counts, such as that of the batches that a worker has normalised."""
    return {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}


def require_replays(configs, results):
    """Compare runs in several processes with the replays of their logs."""
    for index, config in enumerate(configs):
        _, weights, lines, laps = results[0][index]
        log = parse_log(config, lines)
        replayed = replay_run(config, log)
        assert largest_difference(weights, replayed) < 1e-15, config
        parameters = dict(Training(config).model.named_parameters())
        assert all(torch.equal(weights[name], replayed[name]) for name in parameters)  # sums have the same order
        assert all(lap.max_staleness == max(arrivals.staleness) for lap, arrivals in zip(laps, log, strict=True))
        assert all(lap.mean_staleness == arrivals.mean_staleness for lap, arrivals in zip(laps, log, strict=True))
        assert max(lap.max_staleness for lap in laps) <= config.sync_method.staleness
        pushes = [push for arrivals in log for update in arrivals.updates for push in update]
        assert {push.worker for push in pushes} == set(range(len(results)))  # none starves
        for _, other_weights, other_lines, other_laps in (result[index] for result in results[1:]):
            assert largest_difference(select_floats(other_weights), select_floats(weights)) == 0.0
            assert other_lines == []
            assert [(lap.loss, lap.metric, lap.mean_staleness) for lap in other_laps] == [
                (lap.loss, lap.metric, lap.mean_staleness) for lap in laps
            ]


FAST_SHAPE = (3, 2)
SLOW_SHAPES = [(2, 1), (4, 0), (6, 3)]  # the fewest workers, workers that all have a server, and the most of both
FURTHER_SHAPES = [
    (processes, servers)
    for processes in range(2, 7)
    for servers in range(min(3, processes) + 1)
    if (processes, servers) not in [FAST_SHAPE, *SLOW_SHAPES]
]


@pytest.mark.parametrize(
    ("processes", "servers"),
    [
        FAST_SHAPE,
        *(pytest.param(*shape, marks=pytest.mark.slow) for shape in SLOW_SHAPES),
        *(pytest.param(*shape, marks=[pytest.mark.slow, pytest.mark.thorough]) for shape in FURTHER_SHAPES),
    ],
)
def test_run_is_the_replay_of_its_log(rendezvous_folder, processes, servers):
    configs = build_configs(processes, servers)
    require_replays(configs, run_with_gloo(processes, rendezvous_folder, train_runs, configs))


@pytest.mark.parametrize("processes", [3, pytest.param(6, marks=pytest.mark.slow)])
def test_run_without_staleness_is_that_of_servers_and_of_exact_sums(rendezvous_folder, processes):
    smooth = {"workload": "tests.support.workloads:with_dropout"}  # without running statistics of each worker
    configs = [
        replace(UNEQUAL, workers=processes, sync=sync, servers=servers, **smooth, **changes)
        for changes in ({}, ADAMW)
        for sync, servers in (("async:0", 2), ("server", 2), ("step", 0))
    ]
    results = run_with_gloo(processes, rendezvous_folder, train_runs, configs)[0]
    for first in (0, 3):
        (state, _, _, laps), *others = results[first : first + 3]
        for other_state, _, _, other_laps in others:
            assert largest_difference(state, other_state) < 1e-15
            assert [lap.metric for lap in laps] == [lap.metric for lap in other_laps]


@pytest.mark.slow
def test_slower_workers_compute_fewer_tickets_and_hold_nobody_up_for_long(rendezvous_folder):
    config = replace(UNEQUAL, workers=3, sync="async:100", servers=1)
    _, _, lines, _ = run_with_gloo(3, rendezvous_folder, train_runs, [config])[0][0]
    pushes = [push for lap in parse_log(config, lines) for update in lap.updates for push in update]
    first, second, third = (sum(push.worker == worker for push in pushes) for worker in range(3))
    assert first > third > 0 and second > third


@pytest.mark.slow
def test_resumed_run_is_the_replay_of_its_log(rendezvous_folder):
    config = replace(UNEQUAL, workers=3, sync="async:2", servers=2, **ADAMW)
    weights, lines = run_with_gloo(3, rendezvous_folder, train_interrupted, config)[0]
    log = parse_log(config, lines)
    assert len(log) == 2
    assert largest_difference(weights, replay_run(config, log)) < 1e-15
