"""--sync server: the steps of --sync step, whichever servers hold the weights and the state of the optimizer."""

import os
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load, save

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from tests.support.errors import raises_code
from tests.support.gloo import run_with_gloo

DIGITS = TrainConfig(
    workload="digits", batch_size=8, workers=3, target=2.0, max_examples=480, eval_every=240, precision="fp64"
)
SHORT = replace(DIGITS, max_examples=192, eval_every=96)
CASES = {
    "momentum": {"weight_decay": 0.01, "decay_on": "matrices", "clip_norm": 0.5},
    "adamw": {"optimizer": "adamw", "lr": 0.002, "schedule": "cosine", "clip_norm": 0.1},
    # one key is larger than all the others
    "batch-norm": {"workload": "tests.support.workloads:with_batch_norm", "channels_last": True, "batch_size": 4},
    "dropout": {"workload": "tests.support.workloads:with_dropout", "grad_accumulation": 2, "precision": "fp32"},
    "lars": {"optimizer": "lars", "trust": 0.02, "weight_decay": 0.01},
    "lamb": {"optimizer": "lamb", "lr": 0.01, "weight_decay": 0.01, "decay_on": "matrices"},
    "adafactor": {"optimizer": "adafactor", "lr": 0.01, "precision": "fp32"},
    "unused": {"workload": "tests.support.workloads:with_unused", "weight_decay": 0.1, "batch_size": 16},
}


@pytest.fixture(scope="module")
def rendezvous_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("gloo")


def train_state(config):
    """Train to the end; return all tensors of a checkpoint, and the laps."""
    training = Training(config)
    for _ in training.laps():
        pass
    return training.state_dict(), training.finished_laps


def train_states(configs):
    return [train_state(config) for config in configs]


def are_equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def with_servers(config, servers):
    return replace(config, sync="server", servers=servers)


def compare_with_steps(folder, processes, configs, servers):
    """Train with each number of servers and by sums in the order of ranks; all states must have the same bits."""
    exact = [replace(config, all_reduce="direct" if processes > 1 else "backend") for config in configs]
    all_configs = exact + [with_servers(config, count) for count in servers for config in configs]
    for results in run_with_gloo(processes, folder, train_states, all_configs):
        for index, (state, laps) in enumerate(results):
            expected, expected_laps = results[index % len(configs)]
            assert are_equal(state, expected), all_configs[index]
            learned = [(lap.step, lap.loss, lap.metric) for lap in laps]
            assert learned == [(lap.step, lap.loss, lap.metric) for lap in expected_laps]
            assert index < len(configs) or not any(lap.draws or lap.all_reduce for lap in laps)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 3, *(pytest.param(n, marks=pytest.mark.thorough) for n in (2, 4, 5, 6))])
def test_servers_take_the_steps_of_sums_in_the_order_of_ranks_to_the_bit(rendezvous_folder, processes):
    configs = [replace(DIGITS, workers=processes, **changes) for changes in CASES.values()]
    compare_with_steps(rendezvous_folder, processes, configs, range(min(3, processes) + 1))


def test_servers_of_parts_of_any_size_sum_in_the_order_of_ranks(rendezvous_folder):
    configs = [replace(SHORT, **CASES[name]) for name in ("momentum", "adamw", "batch-norm", "lars", "lamb")]
    compare_with_steps(rendezvous_folder, 3, configs, (0, 2))


def test_one_process_takes_exact_steps_and_measures_no_noise():
    config = replace(SHORT, noise_scale_every=1, **CASES["adamw"])
    state, laps = train_state(with_servers(config, 2))
    exact, exact_laps = train_state(config)
    assert are_equal(state, exact) and [lap.loss for lap in laps] == [lap.loss for lap in exact_laps]
    assert not any(lap.draws for lap in laps) and all(lap.draws for lap in exact_laps)


def test_fewer_processes_than_workers_share_their_micro_batches(rendezvous_folder):
    compare_with_steps(rendezvous_folder, 2, [replace(SHORT, workers=5, **CASES["dropout"])], (0, 4))


def train_one_lap(config):
    training = Training(config)
    next(training.laps())
    state = dict(training.saved_state().tensors) if training.rank == 0 else {}  # as in a checkpoint
    if training.workers > 1:
        dist.barrier()
    return save(state), training.finished_laps


def resume_states(config_groups, checkpoints):
    """Return the states at the end of runs that go on from checkpoints."""
    states = []
    for configs, (saved, finished_laps) in zip(config_groups, checkpoints, strict=True):
        for config in configs:
            training = Training(config)
            training.load_state_dict(load(saved), finished_laps)
            for _ in training.laps():
                pass
            states.append(training.state_dict())
    return states


def train_one_lap_each(configs):
    return [train_one_lap(config) for config in configs]


@pytest.mark.parametrize("names", [["adamw"], pytest.param(["momentum", "adafactor"], marks=pytest.mark.slow)])
def test_a_run_goes_on_with_other_servers_or_without_any_to_the_bit(rendezvous_folder, names):
    served = [with_servers(replace(SHORT, keep="best", **CASES[name]), 2) for name in names]
    exact = [replace(config, sync="step", servers=0, all_reduce="direct") for config in served]
    starts = [*exact, *served]
    checkpoints = run_with_gloo(3, rendezvous_folder, train_one_lap_each, starts)[0]
    count = len(names)
    assert all(checkpoints[index][0] == checkpoints[count + index][0] for index in range(count))
    groups = [
        [replace(config, servers=0), replace(config, servers=1), exact[index]] for index, config in enumerate(served)
    ]
    results = run_with_gloo(3, rendezvous_folder, resume_states, groups * 2, checkpoints)
    uninterrupted = run_with_gloo(3, rendezvous_folder, train_states, exact)[0]
    for states in results:
        for index, state in enumerate(states):
            assert are_equal(state, uninterrupted[index // 3 % count][0])


def test_a_run_goes_on_with_other_workers(rendezvous_folder):
    config = with_servers(replace(SHORT, workers=4, **CASES["adamw"]), 0)
    checkpoint = run_with_gloo(3, rendezvous_folder, train_one_lap, config)[0]
    (alone,) = resume_states([[config]], [checkpoint])
    for states in run_with_gloo(2, rendezvous_folder, resume_states, [[config]], [checkpoint]):
        for name, value in states[0].items():
            assert torch.allclose(value, alone[name], rtol=1e-9, atol=1e-12), name


def train_kept(config):
    """Return the kept weights of a finished run, and its metric on the validation split."""
    training = Training(config)
    assert training.fits_in_memory()
    for _ in training.laps():
        pass
    training.load_kept_weights()
    return training.model.state_dict(), training.evaluate(training.workload.validation), training.finished_laps


def train_kept_models(configs):
    return [train_kept(config) for config in configs]


def test_kept_weights_and_frozen_stages_are_those_of_exact_steps(rendezvous_folder):
    config = replace(SHORT, keep="best", freeze_stages=1, body_lr_scale=0.3, lr=0.3, all_reduce="direct")
    served = replace(config, sync="server", servers=2, all_reduce="auto")
    for exact, kept in run_with_gloo(3, rendezvous_folder, train_kept_models, [config, served]):
        assert are_equal(kept[0], exact[0])
        assert kept[1] == exact[1] == max(lap.metric for lap in kept[2])


def train_on_nodes(configs, nodes):
    """Train as the worker of a node that the environment of Ray Train names."""
    os.environ["NODE_RANK"] = str(nodes[dist.get_rank()])
    return [(train_state(config), Training(config).optimizer.store.sent_bytes) for config in configs]


@pytest.mark.parametrize(
    "nodes",
    [
        (0, 0, 1),
        pytest.param((0, 0), marks=[pytest.mark.slow, pytest.mark.thorough]),
        pytest.param((0, 1, 0, 1, 1), marks=pytest.mark.slow),
    ],
)
def test_workers_of_a_node_sum_first(rendezvous_folder, nodes):
    config = replace(SHORT, workers=len(nodes), all_reduce="two-level", **CASES["adamw"])
    configs = [with_servers(config, servers) for servers in (0, 1)]
    results = run_with_gloo(len(nodes), rendezvous_folder, train_on_nodes, configs, nodes)
    expected, expected_laps = train_state(replace(config, all_reduce="backend"))
    size = sum(parameter.nbytes for parameter in Training(replace(config, all_reduce="backend")).trainable_parameters)
    for result in results:
        for index, ((state, laps), _) in enumerate(result):
            assert are_equal(state, results[0][index][0][0])
            for name, value in state.items():
                assert torch.allclose(value, expected[name], rtol=1e-9, atol=1e-13), name
            assert [lap.step for lap in laps] == [lap.step for lap in expected_laps]
            inside = (max(nodes.count(node) for node in nodes) - 1) * size
            if len(set(nodes)) == 1:
                assert (laps[0].sent_bytes, laps[0].rounds) == (inside, 2)
            else:
                assert (laps[0].sent_bytes, laps[0].rounds) == (size + inside, 4 + (index == 0))  # norms of two servers


def count_sent_bytes(configs):
    """Return the bytes that this process has sent a step, and those that laps name."""
    counted = []
    for config in configs:
        training = Training(config)
        for _ in training.laps():
            pass
        dist.barrier()  # all replies are sent
        lap = training.finished_laps[-1]
        counted.append((training.steps.store.sent_bytes / training.step, lap.sent_bytes, lap.rounds, lap.steps))
    return counted


def test_laps_count_what_the_busiest_worker_sends(rendezvous_folder):
    configs = [with_servers(SHORT, servers) for servers in (0, 1, 2)]
    by_rank = run_with_gloo(3, rendezvous_folder, count_sent_bytes, configs)
    for rows in zip(*by_rank, strict=True):
        assert max(row[0] for row in rows) == rows[0][1]
        assert {row[1:] for row in rows} == {rows[0][1:]} and rows[0][2] == 2


def refuse_servers(nodes):
    os.environ["NODE_RANK"] = str(nodes[dist.get_rank()])
    with raises_code("option-conflict", "cannot run 2 servers on 1 node", "--servers 1"):
        Training(replace(DIGITS, workers=2, sync="server", servers=2, all_reduce="two-level"))


def test_more_servers_than_there_is_room_for_are_refused(rendezvous_folder):
    few_keys = replace(DIGITS, workload="tests.support.workloads:with_unused", workers=5, sync="server")
    with raises_code("option-range", "cannot spread 4 parameters over 5 servers", "--servers 4"):
        Training(replace(few_keys, servers=5))
    Training(few_keys)  # 0 is as many as there are keys for
    run_with_gloo(2, rendezvous_folder, refuse_servers, (0, 0))
