"""PowerSGD against its definition, and against torch's hook on real processes."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from equipoise.compression.low_rank_sum import LowRankSum, replace_vanished_columns, uses_low_rank
from tests.support.gloo import run_with_gloo

SHAPES = [(20, 12), (20,), (6, 2, 3, 3), (3, 3)]
RANK = 2


def draw_gradients(workers, steps=4):
    generator = torch.Generator().manual_seed(2)
    return [
        [[torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES] for _ in range(workers)]
        for _ in range(steps)
    ]


def build_sums(workers, rank=RANK, error_feedback=True, seed=0):
    tensors = [torch.zeros(shape, dtype=torch.float64) for shape in SHAPES]
    return [LowRankSum(tensors, rank, workers, seed, error_feedback) for _ in range(workers)]


def sum_step(sums, gradients):
    """Return the gradients that each worker finds, after the sums of P and of Q."""
    for worker, own in zip(sums, gradients, strict=True):
        worker.start(own)
    for flats in ([worker.flat_p for worker in sums], [worker.flat_q for worker in sums]):
        total = torch.stack(flats).sum(0)
        for flat in flats:
            flat.copy_(total)
        if flats[0] is sums[0].flat_p:
            for worker in sums:
                worker.project()
    return [worker.finish() for worker in sums]


def add_up(gradients):
    """Return the sums of all workers' gradients."""
    return [torch.stack(list(parts)).sum(0) for parts in zip(*gradients, strict=True)]


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_what_was_sent_and_what_is_kept_is_the_sum_of_all_gradients(workers):
    sums = build_sums(workers)
    sent = [torch.zeros(shape, dtype=torch.float64) for shape in SHAPES]
    gradients = draw_gradients(workers)
    for step, step_gradients in enumerate(gradients, 1):
        first, *others = sum_step(sums, step_gradients)
        assert all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))
        for total, part in zip(sent, first, strict=True):
            total += part
        expected = add_up([add_up(one_step) for one_step in gradients[:step]])
        kept = iter(add_up([worker.errors for worker in sums]))
        for total, target, low in zip(sent, expected, sums[0].is_low_rank, strict=True):
            rest = next(kept).view(target.shape) if low else torch.zeros_like(target)
            torch.testing.assert_close(total + rest, target, rtol=0, atol=1e-13)
            assert not low or rest.norm() > 0.1


@pytest.mark.parametrize("workers", [2, 3])
def test_several_workers_find_what_one_finds_for_the_sum_of_their_gradients(workers):
    several, alone = build_sums(workers), build_sums(1)
    for gradients in draw_gradients(workers):
        found = sum_step(several, gradients)[0]
        expected = sum_step(alone, [add_up(gradients)])[0]
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_matrices_that_the_rank_does_not_shorten_are_exact():
    assert build_sums(1)[0].is_low_rank == [True, False, True, False]
    gradients = draw_gradients(2)[0]
    for rank, exact in ((RANK, [1, 3]), (5, [1, 2, 3]), (8, [0, 1, 2, 3])):
        found, expected = sum_step(build_sums(2, rank), gradients)[0], add_up(gradients)
        assert all(torch.equal(found[index], expected[index]) for index in exact)


def test_gradients_of_no_higher_rank_are_exact_with_full_and_with_missing_columns():
    generator = torch.Generator().manual_seed(3)
    for true_rank in (1, 2):
        sums = build_sums(1)
        for _ in range(3):
            matrices = [
                torch.randn(len(torch.empty(shape)), true_rank, generator=generator, dtype=torch.float64)
                @ torch.randn(true_rank, torch.empty(shape)[0].numel(), generator=generator, dtype=torch.float64)
                for shape in SHAPES
            ]
            gradients = [matrix.reshape(shape) if len(shape) > 1 else matrix[:, 0] for matrix, shape in
                         zip(matrices, SHAPES, strict=True)]  # fmt: skip
            for found, gradient in zip(sum_step(sums, [gradients])[0], gradients, strict=True):
                torch.testing.assert_close(found, gradient, rtol=0, atol=1e-12)


def test_warm_start_finds_the_nearest_matrix_of_its_rank():
    sums, gradients = build_sums(1, error_feedback=False), draw_gradients(1)[0]
    for _ in range(300):
        found = sum_step(sums, gradients)[0]
    u, s, v = torch.linalg.svd(gradients[0][0], full_matrices=False)
    torch.testing.assert_close(found[0], (u[:, :RANK] * s[:RANK]) @ v[:RANK], rtol=0, atol=1e-6)


def test_gradients_of_zeros_are_summed_and_those_after_them_too():
    sums = build_sums(1)
    zeros = [torch.zeros(shape, dtype=torch.float64) for shape in SHAPES]
    assert not any(total.any() for total in sum_step(sums, [zeros])[0])
    fresh, gradients = build_sums(1), draw_gradients(1)[0]
    for ours, theirs in zip(sum_step(sums, gradients)[0], sum_step(fresh, gradients)[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_vanished_columns_begin_anew():
    first = torch.full((3, 2), 7.0)
    q = torch.tensor([[1.0, 1e-9], [0.0, 0.0], [2.0, 0.0]])
    assert replace_vanished_columns(q, first).tolist() == [[1.0, 7.0], [0.0, 7.0], [2.0, 7.0]]
    assert torch.equal(replace_vanished_columns(torch.zeros(3, 2), first), first)


def train_with_torch_hook(inputs, weights):
    """Return the gradients of each step with torch's hook, in one bucket, from the same first Q."""
    rank = dist.get_rank()
    model = build_model(weights)
    ddp = DistributedDataParallel(model, bucket_cap_mb=100, gradient_as_bucket_view=False)
    state = PowerSGDState(
        None, RANK, start_powerSGD_iter=2, min_compression_rate=1, orthogonalization_epsilon=0,
        batch_tensors_with_same_shape=False,
    )  # fmt: skip
    ddp.register_comm_hook(state, powerSGD_hook)
    first_q, gradients = None, []
    for step, step_inputs in enumerate(inputs):
        model.zero_grad(set_to_none=True)
        if step == 2:
            state.p_memory_dict[0] = torch.zeros(sum(RANK * len(w) for w in weights), dtype=torch.float64)
            generator = torch.Generator().manual_seed(5)
            first_q = [torch.randn(w.shape[1], RANK, generator=generator, dtype=torch.float64) for w in weights]
            state.q_memory_dict[0] = torch.cat([q.flatten() for q in first_q[::-1]])  # in the order of backward
        ddp(step_inputs[rank]).square().mean().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    return gradients


def build_model(weights):
    model = nn.Sequential(*(nn.Linear(w.shape[1], w.shape[0], bias=False, dtype=torch.float64) for w in weights))
    with torch.no_grad():
        for parameter, weight in zip(model.parameters(), weights, strict=True):
            parameter.copy_(weight)
    return model


def test_sums_are_those_of_the_hook_of_torch(tmp_path):
    generator = torch.Generator().manual_seed(4)
    weights = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((11, 14), (9, 11))]
    inputs = [torch.randn(2, 16, 14, generator=generator, dtype=torch.float64) for _ in range(6)]
    (expected, others) = run_with_gloo(2, tmp_path, train_with_torch_hook, inputs, weights)
    model = build_model(weights)
    sums = [LowRankSum(list(model.parameters()), RANK, 2) for _ in range(2)]
    q_generator = torch.Generator().manual_seed(5)
    for index, weight in enumerate(weights):
        first = torch.randn(weight.shape[1], RANK, generator=q_generator, dtype=torch.float64)
        for worker in sums:
            worker.q_matrices[index].copy_(first)
    for step in range(2, 6):
        gradients = []
        for own_inputs in inputs[step]:
            model.zero_grad()
            (model(own_inputs).square().mean() / 2).backward()
            gradients.append([parameter.grad.clone() for parameter in model.parameters()])
        for found, torchs, others_found in zip(sum_step(sums, gradients)[0], expected[step], others[step], strict=True):
            assert torch.equal(torchs, others_found)
            torch.testing.assert_close(found, torchs, rtol=1e-11, atol=1e-13)


def test_only_matrices_with_numbers_travel_as_products():
    assert uses_low_rank(torch.zeros(9, 9), 4) and not uses_low_rank(torch.zeros(8, 8), 4)  # 4 (8 + 8) = 8 * 8
    for shape in ((0, 5), (5, 0), (5,), ()):
        assert not uses_low_rank(torch.zeros(shape), 1)


def test_sums_have_the_dtype_that_is_asked_for():
    gradients = [torch.randn(20, 12, generator=torch.Generator().manual_seed(1)), torch.ones(3)]
    for dtype, expected in ((torch.float64, torch.float64), (None, torch.float32)):
        low_rank_sum = LowRankSum(gradients, RANK, dtype=dtype)
        assert low_rank_sum.flat_p.dtype == low_rank_sum.flat_q.dtype == expected
        assert len(low_rank_sum.errors) == 1
