"""Sums of encoded tensors in one process that computes for all workers: what was sent and what is kept add up."""

import pytest
import torch

from equipoise.compression.build_encoded_sum import build_encoded_sum
from equipoise.compression.quantized_sum import QuantizedSum
from equipoise.compression.top_share_sum import find_largest
from equipoise.compression.worker_layout import WorkerLayout, exchange_chunks
from equipoise.planning.exchanges.compression_cost import BLOCK_NUMBERS
from equipoise.registries.exchange_registry import parse_compression

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
        torch.testing.assert_close(
            sent + encoded_sum.collect_error(), gradients[: step + 1].sum((0, 1)), rtol=0, atol=1e-13
        )
        assert encoded_sum.collect_error().norm() > 1e-3


@pytest.mark.parametrize("method", METHODS)
def test_without_feedback_nothing_is_kept_and_each_step_stands_alone(method):
    gradients, encoded_sum = draw_gradients(2, steps=2), build_sum(method, 2, error_feedback=False)
    first, second = (sum_step(encoded_sum, gradients[step]).clone() for step in (0, 1))
    assert not encoded_sum.collect_error().any()
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
    assert not exact.collect_error().any()


@pytest.mark.parametrize("method", METHODS)
def test_error_of_a_checkpoint_is_shared_by_any_number_of_workers(method):
    gradients, encoded_sum = draw_gradients(3, steps=2), build_sum(method, 3)
    for step in range(2):
        sum_step(encoded_sum, gradients[step])
    error = encoded_sum.collect_error()
    for workers in (1, 2, 5):
        resumed = build_sum(method, workers)
        resumed.load_error(error)
        torch.testing.assert_close(resumed.collect_error(), error, rtol=0, atol=1e-15)


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
    torch.testing.assert_close(total + encoded_sum.collect_error(), gradients.sum(0), rtol=0, atol=1e-14)


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
    for count, share in ((100_000, 0.01), (100_000, 0.3), (40_000, 1e-5)):
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
