"""Bundles of tables answer rows as the trained model does, with calibrated scores or an interval."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from equipoise.bundle.bundle import load_bundle, load_image_bundle
from equipoise.bundle.engines import ENGINES
from equipoise.bundle.evaluation import Evaluation
from equipoise.bundle.kinds.predictions import NumberPrediction, Prediction
from equipoise.bundle.kinds.regression import RegressionEvaluation
from equipoise.runs.folder import read_record
from equipoise.training.torch_state import load_weights
from equipoise.workloads import load_workload
from equipoise.workloads.batch import call_model
from tests.support.bundles import publish_run, train_table
from tests.support.errors import raises_code
from tests.support.tables import friedman_table, mixed_table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def friedman(folder):
    run = train_table(folder / "friedman", friedman_table(600), "y")
    return load_bundle(publish_run(run, folder / "friedman-bundle"))


@pytest.fixture(scope="module")
def grades(folder):
    run = train_table(folder / "grades", mixed_table(600), "grade")
    return load_bundle(publish_run(run, folder / "grades-bundle"))


def compute_trained_outputs(folder, rows):
    """Return the workload of a run, and what its model returns for rows, without a bundle."""
    workload = load_workload(read_record(folder / "record.json").config)
    model = workload.model().eval()
    load_weights(model, load_file(folder / "model.safetensors"))
    inputs = workload.spec.encode_rows(rows)
    tensors = tuple(map(torch.from_numpy, inputs if isinstance(inputs, tuple) else (inputs,)))
    with torch.no_grad():
        return workload, call_model(model, tensors)


def list_mixed_rows(count, seed):
    table = mixed_table(count, seed).astype({"age": object})
    table["age"] = table["age"].where(table["age"].notna(), None)
    return [row | {"day": str(row["day"].date())} for row in table.drop(columns="grade").to_dict("records")]


def test_number_is_that_of_the_trained_model_in_the_unit_of_the_label(friedman, folder):
    rows = friedman_table(40, seed=1).to_dict("records")
    workload, outputs = compute_trained_outputs(folder / "friedman", rows)
    prediction = friedman.predict_rows(rows)
    assert isinstance(prediction, NumberPrediction) and prediction.features.shape == (40, 64)
    np.testing.assert_allclose(prediction.values, workload.spec.label.decode_numbers(outputs.double().numpy()), 1e-5)


def test_interval_lies_around_the_number_and_contains_most_new_values(friedman):
    metrics, table = friedman.manifest.metrics, friedman_table(2000, seed=2)
    prediction = friedman.predict_rows(table.to_dict("records"))  # two batches of the engine
    low, value, high = map(np.array, (prediction.low, prediction.values, prediction.high))
    assert isinstance(metrics, RegressionEvaluation) and metrics.r2 > 0.6
    np.testing.assert_allclose([value - low, high - value], metrics.half_width)
    covered = np.mean((low <= table["y"]) & (table["y"] <= high))
    assert 0.8 < covered < 0.97 and 0.75 < metrics.coverage <= 1


def test_model_without_an_interval_predicts_numbers_alone(friedman):
    manifest = friedman.manifest
    metrics = RegressionEvaluation(r2=0.1, rmse=1.0, half_width=None, coverage=None)
    bundle = type(friedman)(friedman.folder, replace(manifest, metrics=metrics))
    prediction = bundle.predict_rows(friedman_table(3).to_dict("records"))
    assert (prediction.low, prediction.high) == (None, None) and len(prediction.values) == 3


def test_class_is_that_of_the_trained_model_with_calibrated_scores(grades, folder):
    rows = list_mixed_rows(50, seed=1)
    _, outputs = compute_trained_outputs(folder / "grades", rows)
    prediction, metrics = grades.predict_rows(rows), grades.manifest.metrics
    assert isinstance(prediction, Prediction) and isinstance(metrics, Evaluation)
    expected = torch.softmax(outputs / metrics.temperature, 1)
    torch.testing.assert_close(prediction.scores, expected, rtol=0, atol=1e-5)
    assert prediction.labels == [("high", "low")[index] for index in outputs.argmax(1)]
    assert metrics.accuracy > 0.8 and metrics.by_class.keys() == {"high", "low"}


def test_manifest_declares_the_tensors_of_a_table(grades, friedman):
    assert [(tensor.name, tensor.dtype, tensor.shape) for tensor in grades.manifest.inputs] == [
        ("numbers", "float32", (-1, 5)),  # age, whether it is missing, paid, day and price
        ("codes", "int64", (-1, 1)),
    ]
    assert [(tensor.name, tensor.shape) for tensor in grades.manifest.outputs] == [
        ("logits", (-1, 2)),
        ("features", (-1, 64)),
    ]
    assert [tensor.name for tensor in friedman.manifest.outputs] == ["values", "features"]
    assert friedman.manifest.outputs[0].shape == (-1,) and friedman.classes == []


@pytest.mark.parametrize("name", ["friedman", "grades"])
def test_all_engines_agree_on_rows(name, request):
    bundle = request.getfixturevalue(name)
    inputs, expected = bundle.load_kept_examples(50)
    assert len(expected) == 50 and {result.engine for result in bundle.manifest.engine.table} == {*ENGINES}
    for engine in ENGINES:
        outputs = load_bundle(bundle.folder, engine).run_engine(*inputs)
        np.testing.assert_allclose(outputs[0].numpy(), expected, atol=1e-4)


def test_rows_that_do_not_fit_the_columns_are_refused(grades):
    [row] = list_mixed_rows(1, seed=3)
    for rows, part in (
        ([{**row, "age": "old"}], "age"),
        ([{name: value for name, value in row.items() if name != "city"}], "city"),
        ([row, {**row, "town": "Bern"}], "row 2"),
        ([], "no row"),
        (row, "one row"),
    ):
        with raises_code("row-invalid", part):
            grades.predict_rows(rows)
    assert grades.predict_rows([row | {"age": None, "city": "Rome"}]).labels  # a missing number, an unknown text


def test_model_of_a_table_is_refused_where_images_are_needed(grades):
    with raises_code("bundle-kind", "check images"):
        load_image_bundle(grades.folder, "check images")
    with raises_code("bundle-kind"):
        _ = grades.manifest.image_input
