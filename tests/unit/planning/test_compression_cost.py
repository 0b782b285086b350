"""Closed forms of compressed exchanges, against counts by hand."""

import pytest

from equipoise.planning.exchanges.compression_cost import (
    GradientShapes,
    compression_cost,
    count_kept_numbers,
    saves_bytes,
)
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.exchanges.exchange_time import all_reduce_cost
from equipoise.registries.exchange_registry import CompressionMethod, parse_compression

SHAPES = GradientShapes.from_shapes([(64, 1, 3, 3), (64,), (10, 576), (10,), (), (0, 5)])


def test_tensors_of_several_dimensions_are_matrices_of_their_first():
    assert SHAPES.matrices == ((64, 9), (10, 576))
    assert SHAPES.other_numbers == 64 + 10 + 1
    assert SHAPES.gradient_bytes == 4 * (64 * 9 + 5760 + 75)


def test_rank_counts_only_for_matrices_that_it_shortens():
    assert SHAPES.count_low_rank_numbers(2) == (2 * 74, 2 * 585, 75)
    assert SHAPES.count_low_rank_numbers(9) == (9 * 10, 9 * 576, 75 + 576)
    assert SHAPES.count_low_rank_numbers(10) == (0, 0, SHAPES.num_numbers)
    assert not any(saves_bytes(rows, columns, min(rows, columns)) for rows in range(1, 9) for columns in range(1, 9))


@pytest.mark.parametrize(
    ("text", "sent", "rounds"),
    [("bf16", 2 * 3 / 4 * 26 * 512, 2), ("int8", 2 * 3 / 4 * 26 * 260, 2), ("topk:0.01", 3 * 64 * 8, 1)],
)
def test_bytes_of_four_workers(text, sent, rounds):
    cost = compression_cost(parse_compression(text), SHAPES, 4)
    assert (cost.mean_sent_bytes, cost.rounds) == (sent, rounds)
    assert cost.max_sent_bytes >= sent


def test_powersgd_sends_two_sums():
    cost = compression_cost(CompressionMethod("powersgd", 2), SHAPES, 3, all_reduce="direct")
    assert cost == (2 * 4 * (148 + 75 + 1170), 2 * 4 * (148 + 75 + 1170), 2)
    assert compression_cost(CompressionMethod("powersgd", 2), 1000.0, 3) is None
    exact = compression_cost(CompressionMethod("powersgd", 10), SHAPES, 3)
    assert exact == compression_cost(CompressionMethod(), SHAPES, 3)


def test_no_compression_is_the_all_reduce():
    sums = all_reduce_cost("tree", 5, 4096.0)
    assert compression_cost(CompressionMethod(), 4096.0, 5, all_reduce="tree") == (
        sums.mean_sent_bytes,
        sums.max_sent_bytes,
        sums.rounds,
    )


@pytest.mark.parametrize("text", ["none", "bf16", "int8", "powersgd:2", "topk:0.5"])
def test_one_worker_sends_nothing(text):
    assert compression_cost(parse_compression(text), SHAPES, 1) == (0, 0, 0)


def test_share_keeps_at_least_one_number_and_at_most_all():
    assert [count_kept_numbers(50, share) for share in (1e-9, 0.01, 0.03, 0.5, 1.0)] == [1, 1, 2, 25, 50]


def test_share_of_powersgd_follows_from_the_shapes():
    method = parse_exchange("powersgd:2")
    assert method.byte_share(4) is None
    assert method.byte_share(4, SHAPES) == (148 + 1170 + 75) / SHAPES.num_numbers
    size = SHAPES.gradient_bytes
    assert method.sent_bytes(size, 4, 1, SHAPES) == pytest.approx(
        compression_cost(parse_compression("powersgd:2"), SHAPES, 4).mean_sent_bytes
    )
