"""Training with compressed gradients: the same steps on real processes as on workers that share one."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch import nn

from equipoise.config import TrainConfig
from equipoise.planning.exchanges.compression_cost import GradientShapes, compression_cost, find_largest_rank
from equipoise.registries.exchange_registry import parse_compression
from equipoise.training.gradient_sums.compression_checks import (
    check_compression,
    fold_shape,
    require_floating,
    require_usable_rank,
)
from equipoise.training.loop import Training
from tests.support.errors import raises_code
from tests.support.gloo import run_with_gloo
from tests.support.process_states import join_states
from tests.unit.training.test_loop import max_relative_difference, train_model

FP64 = TrainConfig(workload="digits", batch_size=8, target=2.0, max_examples=320, eval_every=160, precision="fp64")
ENCODED = ["bf16", "int8", "topk:0.05"]
LINEAR = "powersgd:2"


@pytest.fixture(scope="module")
def rendezvous_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("gloo")


def train_each(configs):
    """Return the final weights, the laps and the state of runs one after the other."""
    results = []
    for config in configs:
        training = Training(config)
        laps = list(training.laps())
        results.append((training.model.state_dict(), laps, training.state_dict()))
    return results


@pytest.mark.parametrize("processes", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_real_workers_take_the_steps_of_workers_in_one_process(rendezvous_folder, processes):
    changes = {"workers": 4, "grad_accumulation": 2, "batch_size": 4}
    configs = [replace(FP64, compression=name, **changes) for name in [*ENCODED, LINEAR]]
    configs.append(replace(configs[-1], workload="tests.support.workloads:with_convolutions", channels_last=True))
    first, *others = run_with_gloo(processes, rendezvous_folder, train_each, configs)
    states = [[state for _, _, state in results] for results in zip(first, *others, strict=True)]
    for config, (weights, laps, _), all_states, (one_process, _, expected_state) in zip(
        configs, first, states, train_each(configs), strict=True
    ):
        if config.compression == LINEAR:
            assert max_relative_difference(weights, one_process) < 1e-12
        else:
            assert all(torch.equal(value, one_process[name]) for name, value in weights.items())
        state = join_states(all_states)
        assert state.keys() == expected_state.keys()
        for name, value in state.items():
            torch.testing.assert_close(value, expected_state[name], rtol=1e-9, atol=1e-12)
        assert laps[-1].workers == processes
    for other in others:
        for (weights, _, _), (same, _, _) in zip(first, other, strict=True):
            assert all(torch.equal(value, same[name]) for name, value in weights.items())


def test_powersgd_of_several_workers_is_that_of_one_with_the_mean_gradient():
    several, _ = train_model(replace(FP64, workers=4, compression=LINEAR))
    alone, _ = train_model(replace(FP64, batch_size=32, compression=LINEAR))
    exact, _ = train_model(replace(FP64, batch_size=32))
    assert max_relative_difference(several, alone) < 1e-12
    assert max_relative_difference(several, exact) > 1e-5


@pytest.mark.parametrize("name", [*ENCODED, LINEAR])
def test_compression_changes_the_steps_and_feedback_changes_them_again(name):
    config = replace(FP64, workers=2, compression=name)
    compressed, without_feedback, exact = (
        train_model(changed)[0]
        for changed in (config, replace(config, error_feedback=False), replace(config, compression="none"))
    )
    assert max_relative_difference(compressed, exact) > 1e-6
    assert max_relative_difference(compressed, without_feedback) > 1e-6


def test_sharing_all_numbers_is_exact():
    config = replace(FP64, workers=2)
    assert (
        max_relative_difference(train_model(replace(config, compression="topk:1"))[0], train_model(config)[0]) < 1e-12
    )


def list_traffic(configs):
    return [Training(config).gradient_sync.traffic for config in configs]


def test_traffic_of_a_lap_is_that_of_the_closed_form(rendezvous_folder):
    names = [*ENCODED, LINEAR]
    configs = [replace(FP64, precision="fp32", workers=3, compression=name, all_reduce="backend") for name in names]
    configs[-1] = replace(configs[-1], all_reduce="ring")
    first, *others = run_with_gloo(3, rendezvous_folder, list_traffic, configs)
    assert all(other == first for other in others)
    shapes = GradientShapes.from_shapes(p.shape for p in Training(FP64).trainable_parameters)
    for config, traffic in zip(configs, first, strict=True):
        cost = compression_cost(config.compression_method, shapes, 3)
        assert traffic.rounds == cost.rounds
        assert traffic.sent_bytes == pytest.approx(cost.max_sent_bytes, abs=0 if config.compression in ENCODED else 8)
    assert first[0].sent_bytes > first[1].sent_bytes > first[2].sent_bytes > 0


@pytest.mark.parametrize("name", [*ENCODED, LINEAR])
def test_a_worker_alone_sends_nothing(name):
    (traffic,) = list_traffic([replace(FP64, compression=name)])
    assert (traffic.sent_bytes, traffic.rounds) == (0, 0)


def count_draws(config):
    return [(lap.draws, lap.encode_seconds, lap.exchange_seconds) for lap in Training(config).laps()]


def test_laps_record_the_seconds_of_encoding_and_no_noise_scale_of_several_workers(rendezvous_folder):
    config = replace(FP64, workers=2, compression="int8")
    for laps in run_with_gloo(2, rendezvous_folder, count_draws, config):
        assert all(draws == 0 and encode > 0 and exchange > 0 for draws, encode, exchange in laps)
    alone = count_draws(config)
    assert alone[0][0] > 0 and all(encode > 0 for _, encode, _ in alone)
    assert all(encode is None for _, encode, _ in count_draws(replace(config, compression="none")))


@pytest.mark.parametrize("name", ["int8", LINEAR])
def test_gradient_that_is_clipped_is_the_decoded_sum(name):
    training = Training(replace(FP64, workers=2, compression=name, clip_norm=1e-3))
    next(training.laps())
    norms = [float(parameter.grad.norm()) for parameter in training.trainable_parameters]
    assert sum(norm**2 for norm in norms) ** 0.5 == pytest.approx(1e-3, rel=1e-2)


def test_parameters_without_a_gradient_stay_as_they_are():
    config = replace(FP64, workload="tests.support.workloads:with_unused", workers=2, weight_decay=0)
    for name in [*ENCODED, LINEAR]:
        training = Training(replace(config, compression=name))
        before = training.model.idle.weight.clone()
        next(training.laps())
        assert torch.equal(training.model.idle.weight, before)


def test_rank_that_no_matrix_can_use_is_refused_with_its_name():
    with raises_code("compression-unusable", "powersgd:400", "(", "powersgd:"):
        Training(replace(FP64, compression="powersgd:400"))
    matrices = {"small": nn.Parameter(torch.zeros(4, 4)), "large.weight": nn.Parameter(torch.zeros(8, 2, 5))}
    with raises_code("compression-unusable", "large.weight", "(8, 2, 5)", "powersgd:4 "):
        require_usable_rank(5, matrices)
    require_usable_rank(4, matrices)
    with raises_code("compression-unusable", "no matrices"):
        require_usable_rank(1, {"bias": nn.Parameter(torch.zeros(4))})
    with raises_code("compression-unusable", "bf16"):
        require_usable_rank(1, {"one.weight": nn.Parameter(torch.zeros(1, 4))})


def test_matrices_that_go_exact_are_named_in_a_line():
    shapes = {"large": (8, 10), "bias": (8,), **{f"small{index}": (3, 3) for index in range(4)}}
    parameters = {name: nn.Parameter(torch.zeros(shape)) for name, shape in shapes.items()}
    line = check_compression(parse_compression("powersgd:2"), parameters)
    assert "4 of the model's 5 matrices" in line and "small0 (3, 3), small1 (3, 3), small2 (3, 3), ..." in line
    assert "bias" not in line and "large" not in line and "\n" not in line
    assert check_compression(parse_compression("powersgd:1"), parameters) == ""
    assert check_compression(parse_compression("int8"), parameters) == ""


@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (8, 10), (10, 8), (64, 3, 3, 3)])
def test_largest_rank_is_the_last_that_saves_numbers(shape):
    rows, columns = fold_shape(torch.empty(shape))
    assert (rows, rows * columns) == (shape[0], torch.empty(shape).numel())
    assert find_largest_rank(rows, columns) == max(
        (rank for rank in range(rows * columns) if rank * (rows + columns) < rows * columns), default=0
    )


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_gradients_that_are_no_floating_point_numbers_are_refused(dtype):
    parameter = nn.Parameter(torch.zeros(3, dtype=dtype), requires_grad=dtype.is_complex)
    with raises_code("compression-unusable", "phase", str(dtype).removeprefix("torch.")):
        require_floating({"phase": parameter})


def test_algorithms_of_a_sum_are_refused_where_nothing_is_summed():
    for name in ENCODED:
        with raises_code("option-conflict", "ring", name.partition(":")[0]):
            replace(FP64, compression=name, all_reduce="ring")
        assert replace(FP64, compression=name, all_reduce="auto").all_reduce == "auto"
    assert replace(FP64, compression=LINEAR, all_reduce="ring").all_reduce == "ring"


def train_with_algorithms(configs):
    assert dist.get_world_size() == 2
    return [train_model(config) for config in configs]


def test_sums_of_powersgd_go_by_the_algorithms_of_all_reduce(rendezvous_folder):
    config = replace(FP64, workers=2, compression=LINEAR)
    configs = [replace(config, all_reduce=name) for name in ("backend", "tree", "auto")]
    results, _ = run_with_gloo(2, rendezvous_folder, train_with_algorithms, configs)
    for weights, laps in results[1:]:
        assert max_relative_difference(weights, results[0][0]) < 1e-12
        assert len(laps[-1].all_reduce) == 2
    assert results[1][1][-1].all_reduce == ("tree", "tree")
