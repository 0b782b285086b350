"""Tensors are described and checked by type and shape; the first size is the number of examples."""

import pytest
import torch

from equipoise.bundle.tensor_checks import describe_tensor, make_zeros, require_probe_outputs
from equipoise.bundle.tensor_spec import TensorSpec
from tests.support.errors import raises_code

LOGITS = TensorSpec(name="logits", dtype="float32", shape=(-1, -1, 3))


def test_tensor_is_described_with_its_open_sizes():
    assert describe_tensor("logits", torch.zeros(2, 5, 3), (0, 1)) == LOGITS
    assert describe_tensor("codes", torch.zeros(2, 4, dtype=torch.int64)).shape == (-1, 4)
    with raises_code("export-failed", "float64"):
        describe_tensor("logits", torch.zeros(2, dtype=torch.float64))


def test_zeros_have_the_declared_type_and_shape():
    zeros = make_zeros(TensorSpec(name="tokens", dtype="int64", shape=(-1, -1)), 3)
    assert zeros.dtype == torch.int64 and zeros.shape == (3, 2)
    assert make_zeros(LOGITS, 1).shape == (1, 2, 3)


@pytest.mark.parametrize(
    "outputs",
    [
        [],
        [torch.zeros(2, 2, 3), torch.zeros(2)],
        [torch.zeros(1, 2, 3)],
        [torch.zeros(2, 1, 3)],
        [torch.zeros(2, 2, 4)],
        [torch.zeros(2, 2, 3, dtype=torch.float64)],
        [torch.full((2, 2, 3), torch.nan)],
        ["logits"],
    ],
)
def test_outputs_other_than_declared_are_refused(outputs):
    require_probe_outputs([torch.zeros(2, 2, 3)], [LOGITS], 2)
    with raises_code("bundle-invalid"):
        require_probe_outputs(outputs, [LOGITS], 2)
