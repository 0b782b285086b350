"""Sums of encoded tensors in one process that computes for all workers: what was sent and what is kept add up."""

import pytest
import torch

from equipoise.compression.build_encoded_sum import build_encoded_sum
from equipoise.compression.kept_errors import PART_PREFIX
from equipoise.compression.quantized_sum import QuantizedSum
from equipoise.compression.top_share_sum import TopShareSum, find_largest
from equipoise.compression.worker_layout import WorkerLayout, exchange_chunks
from equipoise.planning.exchanges.compression_cost import BLOCK_BYTES, BLOCK_NUMBERS
from equipoise.registries.exchange_registry import parse_compression
from tests.support.errors import raises_code

METHODS = ["bf16", "int8", "topk:0.1"]
COUNT = 3 * BLOCK_NUMBERS + 17


class ExactEncoder:
    """Encoder that leaves nothing out: the bytes of fp64."""

    block_bytes = 8 * BLOCK_NUMBERS

    def encode(self, blocks, rows, scratch):
        rows.view(torch.float64).copy_(blocks)

    def decode(self, rows, blocks):
        blocks.copy_(rows.view(torch.float64))


def draw_gradients(workers, steps, dtype=torch.float64, count=COUNT):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(steps, workers, count, generator=generator, dtype=torch.float64).to(dtype)


def sum_step(encoded_sum, gradients):
    """Return the sum of one step's gradients as `encoded_sum` finds it."""
    for index, gradient in enumerate(gradients):
        encoded_sum.encode_worker(index, gradient.clone())
    return encoded_sum.sum_over_workers(exchange_chunks)


def add_up_errors(encoded_sum):
    """Return all that the only process keeps, added to the numbers that it was left out of."""
    total = torch.zeros_like(encoded_sum.total)
    for name, error in encoded_sum.list_errors().items():
        first = int(name.removeprefix(PART_PREFIX)) if name.startswith(PART_PREFIX) else 0
        total[first : first + len(error)] += error
    return total


def build_sum(method, workers, dtype=torch.float64, error_feedback=True, count=COUNT):
    like = torch.zeros(count, dtype=dtype)
    return build_encoded_sum(parse_compression(method), WorkerLayout(workers), like, error_feedback)


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("method", METHODS)
def test_what_was_sent_and_what_is_kept_is_the_sum_of_all_gradients(method, workers):
    gradients, encoded_sum = draw_gradients(workers, steps=5), build_sum(method, workers)
    sent = torch.zeros(COUNT, dtype=torch.float64)
    for step in range(5):
        sent += sum_step(encoded_sum, gradients[step])
        error = add_up_errors(encoded_sum)
        torch.testing.assert_close(sent + error, gradients[: step + 1].sum((0, 1)), rtol=0, atol=1e-13)
        assert error.norm() > 1e-3


@pytest.mark.parametrize("method", METHODS)
def test_without_feedback_nothing_is_kept_and_each_step_stands_alone(method):
    gradients, encoded_sum = draw_gradients(2, steps=2), build_sum(method, 2, error_feedback=False)
    first, second = (sum_step(encoded_sum, gradients[step]).clone() for step in (0, 1))
    assert encoded_sum.list_errors() == {}
    assert torch.equal(second, sum_step(build_sum(method, 2, error_feedback=False), gradients[1]))
    assert not torch.equal(first, gradients[0].sum(0))


@pytest.mark.parametrize("method", METHODS)
def test_feedback_brings_the_mean_of_many_sums_to_that_of_the_gradients(method):
    gradient = draw_gradients(2, steps=1)[0]
    with_feedback, without = build_sum(method, 2), build_sum(method, 2, error_feedback=False)
    deviations = [
        torch.stack([sum_step(encoded_sum, gradient).clone() for _ in range(60)]).mean(0) - gradient.sum(0)
        for encoded_sum in (with_feedback, without)
    ]
    assert 5 * deviations[0].norm() < deviations[1].norm()


@pytest.mark.parametrize("workers", [1, 3])
def test_sum_is_exact_where_nothing_is_left_out(workers):
    gradients = draw_gradients(workers, steps=1)[0]
    expected = gradients[0].clone()
    for gradient in gradients[1:]:
        expected += gradient
    everything = sum_step(build_sum("topk:1", workers), gradients)
    exact = QuantizedSum(WorkerLayout(workers), torch.zeros(COUNT, dtype=torch.float64), ExactEncoder())
    assert torch.equal(everything, expected) and torch.equal(sum_step(exact, gradients), expected)
    assert not add_up_errors(exact).any()


def list_all_errors(method, workers, processes, tensors):
    """Return what all processes keep after each has taken its part of these tensors."""
    errors = {}
    for rank in range(processes):
        like = torch.zeros(COUNT, dtype=torch.float64)
        encoded_sum = build_encoded_sum(parse_compression(method), WorkerLayout(workers, rank, processes), like)
        encoded_sum.load_errors(tensors)
        own = encoded_sum.list_errors()
        assert not errors.keys() & own.keys()
        errors |= own
    return errors


@pytest.mark.parametrize("method", METHODS)
def test_any_number_of_processes_finds_what_its_workers_and_its_part_had_left_out(method):
    gradients, encoded_sum = draw_gradients(6, steps=2), build_sum(method, 6)
    for step in range(2):
        sum_step(encoded_sum, gradients[step])
    errors = {name: error.clone() for name, error in encoded_sum.list_errors().items()}
    for path in ([1], [2], [3, 2], [6, 4], [5, 3, 6]):  # at most 4 blocks: some processes of 5 and 6 sum none
        again = errors
        for processes in (*path, 1):
            again = list_all_errors(method, 6, processes, again)
        assert again.keys() == errors.keys()
        assert all(torch.equal(again[name], error) for name, error in errors.items())


@pytest.mark.parametrize("method", METHODS)
def test_errors_of_fewer_workers_or_of_another_gradient_are_refused(method):
    errors = build_sum(method, 2).list_errors()
    build_sum(method, 2).load_errors(errors)
    with raises_code("run-damaged", "error.worker.2"):
        build_sum(method, 3).load_errors(errors)
    with raises_code("run-mismatch", "error.worker.0", str(COUNT)):
        build_sum(method, 2, count=COUNT - 1).load_errors(errors)


def test_errors_without_a_part_are_refused():
    errors = list_all_errors("int8", 2, 2, build_sum("int8", 2).list_errors())
    part = next(name for name in errors if name.startswith("error.part.") and name != "error.part.0")
    del errors[part]
    with raises_code("run-damaged", "error.part.0"):
        build_sum("int8", 2).load_errors(errors)


@pytest.mark.parametrize("method", METHODS)
def test_numbers_of_fp32_are_summed_in_fp32(method):
    gradients = draw_gradients(2, steps=1, dtype=torch.float32)[0]
    total = sum_step(build_sum(method, 2, torch.float32), gradients)
    assert total.dtype == torch.float32 and total.isfinite().all() and total.any()


@pytest.mark.parametrize("count", [1, BLOCK_NUMBERS, BLOCK_NUMBERS + 1])
@pytest.mark.parametrize("method", METHODS)
def test_small_tensors_are_summed_too(method, count):
    gradients = draw_gradients(2, steps=1, count=count)[0]
    encoded_sum = build_sum(method, 2, count=count)
    total = sum_step(encoded_sum, gradients)
    torch.testing.assert_close(total + add_up_errors(encoded_sum), gradients.sum(0), rtol=0, atol=1e-14)


def test_largest_numbers_are_those_of_largest_magnitude_and_of_equal_ones_the_first():
    values = torch.tensor([1.0, -3.0, 2.0, 3.0, -2.0, 2.0, 0.0])
    assert [find_largest(values, count).tolist() for count in (1, 2, 3, 4, 7)] == [
        [1],
        [1, 3],
        [1, 2, 3],
        [1, 2, 3, 4],
        [0, 1, 2, 3, 4, 5, 6],
    ]
    assert find_largest(torch.zeros(5), 3).tolist() == [0, 1, 2]
    generator = torch.Generator().manual_seed(2)
    for count, share in ((100_000, 0.01), (100_000, 0.3), (100_000, 0.9), (40_000, 1e-5)):
        many = torch.randn(count, generator=generator).round(decimals=2)  # with ties
        expected = many.abs().sort(descending=True, stable=True).indices[: max(1, round(share * count))]
        assert torch.equal(find_largest(many, len(expected)), expected.sort().values)
    rising = torch.arange(100_000.0)
    rising[::6] = 0  # a sample of these says little
    assert torch.equal(find_largest(rising, 50_000), torch.nonzero(rising).view(-1)[-50_000:])
    assert 2 in find_largest(torch.tensor([1.0, 2.0, float("nan"), 3.0]), 1).tolist()


def test_workers_of_a_process_are_in_a_row():
    layouts = [WorkerLayout(5, rank, 3) for rank in range(3)]
    assert [list(layout.hosted) for layout in layouts] == [[0], [1, 2], [3, 4]]
    assert layouts[0].hosted_counts == [1, 2, 2]


@pytest.mark.parametrize(("workers", "processes", "sent_blocks"), [(3, 1, [0]), (2, 2, [4, 4]), (4, 3, [5, 5, 8])])
def test_process_sends_the_parts_of_others_and_its_encoded_sum_to_each(workers, processes, sent_blocks):
    """Four blocks are split 4, 2 + 2 or 1 + 1 + 2, and so are four workers."""
    like = torch.zeros(COUNT, dtype=torch.float64)
    for method in ("bf16", "int8"):
        sums = [
            build_encoded_sum(parse_compression(method), WorkerLayout(workers, rank, processes), like)
            for rank in range(processes)
        ]
        block_bytes = BLOCK_BYTES[method]
        assert [encoded_sum.count_sent_bytes() for encoded_sum in sums] == [n * block_bytes for n in sent_blocks]
        assert sums[0].num_rounds == 2


def test_process_sends_the_largest_numbers_of_its_workers_to_each_other():
    like, kept = torch.zeros(1000), 50
    sums = [TopShareSum(WorkerLayout(4, rank, 3), like, 0.05) for rank in range(3)]
    assert [encoded_sum.count_sent_bytes() for encoded_sum in sums] == [2 * n * kept * (4 + 4) for n in (1, 1, 2)]
    assert TopShareSum(WorkerLayout(4), like, 0.05).count_sent_bytes() == 0
    assert sums[0].num_rounds == 1 and len(sums[2].list_errors()) == 2
