"""Sums that do nothing else: of more bytes they take longer, and all workers agree on how long."""

import torch

from equipoise import wire
from tests.gloo import gloo


def took():
    return wire.timed(1 << 22, torch.device("cpu"))


def test_workers_agree_on_the_seconds_of_sums_from_few_bytes_to_all(tmp_path):
    one, other = gloo(2, tmp_path, took)
    assert one == other
    assert list(one) == [2 * wire.FEW_BYTES, 1 << 16, 1 << 19, 1 << 22]
    assert one[1 << 22] > one[2 * wire.FEW_BYTES] > 0
