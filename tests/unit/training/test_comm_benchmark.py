"""Tests that workers agree on the times of messages and all-reduces without training."""

import pytest
import torch

from equipoise.training.comm_benchmark import time_all_reduce, time_all_reduces, time_send_recv
from tests.support.gloo import run_with_gloo


def time_communication():
    return time_all_reduces(1 << 22, torch.device("cpu")), time_send_recv(torch.device("cpu"))


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_agree_on_message_and_all_reduce_seconds(tmp_path, workers):
    results = run_with_gloo(workers, tmp_path, time_communication)
    assert all(result == results[0] for result in results)
    all_reduce_seconds, message_seconds = results[0]
    assert list(all_reduce_seconds) == [1 << 16, 1 << 19, 1 << 22]
    assert min(*all_reduce_seconds.values(), message_seconds) > 0


def sum_while_timing(seconds, algorithm):
    tensor = torch.full((1000,), 1e-30)
    assert time_all_reduce(tensor, seconds, algorithm) > 0
    return tensor


@pytest.mark.parametrize(
    ("seconds", "rounds", "algorithm"),
    [(0.0, 5, "backend"), (1e9, 50, "backend"), (0.0, 5, "ring"), (0.0, 5, "direct")],
)
def test_timed_all_reduces_sum_over_the_workers(tmp_path, seconds, rounds, algorithm):
    first, second = run_with_gloo(2, tmp_path, sum_while_timing, seconds, algorithm)
    doublings = torch.log2(first / 1e-30).round()
    assert torch.equal(first, second)
    assert set(doublings.tolist()) == {2 + 2 + rounds}  # two to connect, two for an estimate, then those that count
