"""Inputs of a program: their JSON form, and what is refused."""

import pytest
import torch

from equipoise.bundle.program import load_program
from equipoise.bundle.program_input import ProgramInput
from tests.support.errors import raises_code


@pytest.mark.parametrize(
    "sizes", [(), ((0, None),), ((0, None), (3, 3), (0, 64), (4, None), (5, 9))], ids=["scalar", "any", "all kinds"]
)
@pytest.mark.parametrize("key", [0, "tokens"])
def test_json_form_is_reversible(key, sizes):
    described = ProgramInput(key, torch.int64, sizes)
    assert ProgramInput.from_json(described.to_json()) == described


def test_json_form_leaves_out_what_is_not_bounded():
    described = ProgramInput("tokens", torch.int64, ((0, None), (3, 3), (0, 64)))
    assert described.to_json() == {"input": "tokens", "dtype": "int64", "shape": [None, 3, [0, 64]]}


BOUNDED = ProgramInput(0, torch.float32, ((0, None), (3, 3), (2, 4)))


@pytest.mark.parametrize("shape", [(1, 3, 2), (9, 3, 4)])
def test_tensor_within_its_bounds_is_taken_unless_its_type_differs(shape):
    BOUNDED.require_fit(torch.zeros(shape))
    with raises_code("inputs-invalid", "float64"):
        BOUNDED.require_fit(torch.zeros(shape).double())


@pytest.mark.parametrize("shape", [(1, 2, 2), (1, 3, 5), (1, 3, 1), (1, 3), ()])
def test_tensor_outside_of_its_bounds_is_refused(shape):
    with raises_code("inputs-invalid", "any, 3, 2 to 4", shape):
        BOUNDED.require_fit(torch.zeros(shape))


@pytest.mark.parametrize(
    "inputs",
    [
        [{"input": 1, "dtype": "int64", "shape": []}],
        [{"input": True}, {"input": 0, "dtype": "int64", "shape": []}],
        [{"input": "a", "dtype": "int64", "shape": []}, {"input": "a", "dtype": "int64", "shape": []}],
        [{"input": 0, "dtype": "load", "shape": []}],
        [{"input": 0, "dtype": "int64", "shape": ["3"]}],
        [{"input": 0, "dtype": "int64", "shape": [[1, 2, 3]]}],
        [{"input": 0, "dtype": "int64", "shape": [[1, "x"]]}],
        [{"input": 0, "dtype": "int64"}],
        [{"input": False, "dtype": "int64", "shape": []}],
        [{"input": None, "dtype": "int64", "shape": []}],
        [{"input": 0, "dtype": 3, "shape": []}],
        [{"input": True}, {"do": "relu.default", "take": [{}], "named": {}}],
    ],
)
def test_invalid_inputs_are_refused(inputs):
    with raises_code("bundle-invalid"):
        load_program([*inputs, {"output": [{"step": 0}]}], {})
