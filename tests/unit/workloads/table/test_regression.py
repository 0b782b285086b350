"""R2 from rows, against scikit-learn, and however the rows are dealt to workers."""

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st

from equipoise.workloads.table.regression import r2_score, residuals_and_targets, squared_error

numbers = st.floats(-1e3, 1e3, width=32)


@given(st.lists(st.tuples(numbers, numbers), min_size=2))
def test_r2_equals_that_of_scikit_learn(pairs):
    outputs, targets = torch.tensor(pairs, dtype=torch.float32).T
    expected = sklearn.metrics.r2_score(targets.double().numpy(), outputs.double().numpy())
    assert r2_score(residuals_and_targets(outputs, targets)) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_r2_of_constant_targets_is_that_of_scikit_learn():
    targets = torch.full((3,), 2.0)
    assert r2_score(residuals_and_targets(targets, targets)) == 1
    assert r2_score(residuals_and_targets(targets + 1, targets)) == 0


def test_rows_of_parts_give_the_same_score():
    generator = torch.Generator().manual_seed(0)
    outputs, targets = torch.randn(2, 101, generator=generator)
    whole = residuals_and_targets(outputs, targets)
    parts = [residuals_and_targets(*pair) for pair in zip(outputs.split(7), targets.split(7), strict=True)]
    assert torch.equal(torch.cat(parts), whole) and whole.dtype == torch.float64


def test_the_loss_is_the_mean_squared_error():
    outputs, targets = torch.tensor([1.0, 3.0]), torch.tensor([0.0, 1.0])
    assert squared_error(outputs, targets) == np.mean([1, 4])
