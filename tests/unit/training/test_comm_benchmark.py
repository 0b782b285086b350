"""Messages and sums that do nothing else: workers agree on how long they took."""

import pytest
import torch

from equipoise.training.comm_benchmark import time_all_reduces, time_send_recv
from tests.support.gloo import run_with_gloo


def took():
    return time_all_reduces(1 << 22, torch.device("cpu")), time_send_recv(torch.device("cpu"))


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_agree_on_the_seconds_of_a_message_and_of_sums_up_to_the_gradient(tmp_path, workers):
    found = run_with_gloo(workers, tmp_path, took)
    assert all(one == found[0] for one in found)
    sums, message = found[0]
    assert list(sums) == [1 << 16, 1 << 19, 1 << 22]
    assert min(*sums.values(), message) > 0
