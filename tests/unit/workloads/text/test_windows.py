import numpy as np
import pytest
import torch

from equipoise.workloads.text.windows import count_windows, cut_windows


@pytest.mark.parametrize(("num_tokens", "expected"), [(0, 0), (1, 0), (4, 0), (5, 1), (8, 1), (9, 2), (13, 3)])
def test_every_window_has_a_next_token_for_its_last_one(num_tokens, expected):
    assert count_windows(num_tokens, 4) == expected
    inputs, targets = cut_windows(np.arange(num_tokens), 4)
    assert inputs.shape == targets.shape == (expected, 4)
    assert torch.equal(inputs.flatten(), torch.arange(4 * expected))  # none is left out or used twice
    assert torch.equal(targets, inputs + 1)


def test_targets_take_no_memory_of_their_own():
    inputs, targets = cut_windows(np.arange(1000), 64)
    assert inputs.untyped_storage().data_ptr() == targets.untyped_storage().data_ptr()
    assert inputs.dtype == targets.dtype == torch.int64
