"""Models of tables: their inputs, sizes and names."""

import pytest
import torch

from equipoise.tables.columns import TableColumn
from equipoise.tables.labels import TableLabel
from equipoise.tables.spec import TableSpec
from equipoise.workloads.table.models import table_model_factory
from tests.support.errors import raises_code

X = TableColumn(name="x", kind="number", has_missing=True)
CITY = TableColumn(name="city", kind="category", categories=("Bern", "Ulm"))
COLOR = TableColumn(name="color", kind="category", categories=("blue", "green", "red"))
NUMBER = TableLabel(name="y", kind="number")
CLASSES = TableLabel(name="y", kind="class", classes=("a", "b", "c"))


def build_model(columns, label, name=None):
    torch.manual_seed(0)
    return table_model_factory(name, TableSpec(columns=columns, label=label))()


@pytest.mark.parametrize("columns", [(X,), (CITY, COLOR), (X, CITY, COLOR)], ids=["numbers", "codes", "both"])
@pytest.mark.parametrize(("label", "shape"), [(NUMBER, (5,)), (CLASSES, (5, 3))], ids=["number", "classes"])
def test_outputs_are_a_number_or_scores_for_each_row(columns, label, shape):
    inputs = []
    if X in columns:
        inputs.append(torch.randn(5, 2))
    if CITY in columns:
        inputs.append(torch.tensor([[0, 0], [1, 1], [2, 2], [2, 3], [0, 3]]))
    outputs = build_model(columns, label)(*inputs)
    assert outputs.shape == shape and outputs.isfinite().all()


def test_categories_of_two_columns_have_embeddings_of_their_own():
    model = build_model((CITY, COLOR), NUMBER)
    codes = [(city, color) for city in range(3) for color in range(4)]
    outputs = model(torch.tensor(codes))
    assert len(set(outputs.tolist())) == len(codes)
    rows = {city: {int(index) for index in (torch.tensor([city, 0]) + model.first_codes)} for city in range(3)}
    assert rows == {0: {0, 3}, 1: {1, 3}, 2: {2, 3}}


def test_unknown_texts_begin_as_zeros():
    model = build_model((CITY, COLOR), NUMBER)
    assert torch.equal(model.embedding.weight.abs().sum(1) == 0, torch.tensor([True, False, False, True] + [False] * 3))


def test_the_name_gives_layers_and_width():
    model = build_model((X,), CLASSES, "mlp:3x16")
    shapes = [tuple(parameter.shape) for name, parameter in model.named_parameters() if name.endswith("weight")]
    assert shapes == [(16, 2), (16, 16), (16, 16), (3, 16)]
    assert str(build_model((X,), CLASSES)) == str(build_model((X,), CLASSES, "mlp:2x64"))


def test_unknown_names_and_sizes_are_refused():
    for name in ("resnet18", "mlp:2", "mlp:2x", "mlp:-1x5", "mlp:1x2x3", "MLP"):
        with raises_code("model-unknown", name, "mlp:2x64"):
            build_model((X,), NUMBER, name)
    for name in ("mlp:0x64", "mlp:2x0", "mlp:33x64", "mlp:2x8193"):
        with raises_code("model-invalid", name):
            build_model((X,), NUMBER, name)
