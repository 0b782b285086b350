"""Workload table: from a file to splits, inputs, a model that learns, and a score."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from equipoise.config import TrainConfig
from equipoise.tables.spec import TableSpec
from equipoise.training.loop import Training, laps
from equipoise.workloads import load_workload
from equipoise.workloads.batch import call_model
from equipoise.workloads.table.build import inputs_to_tensors
from tests.support.errors import raises_code
from tests.support.tables import friedman_table, mixed_table

PARTS = ("train", "validation", "reference", "test")


def build_config(path, label, **options):
    return TrainConfig(workload="table", data=str(path), label=label, **options)


@pytest.fixture(scope="module")
def mixed_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "people.csv"
    mixed_table(400).to_csv(path, index=False)
    return path


@pytest.mark.parametrize(("label", "shape"), [("price", ()), ("grade", (2,)), ("paid", (2,)), ("city", (5,))])
def test_inputs_targets_and_outputs_fit_together(mixed_file, label, shape):
    workload = load_workload(build_config(mixed_file, label, batch_size=16))
    assert workload.name == "people"
    assert [len(getattr(workload, part)) for part in PARTS] == [
        pytest.approx(400 * share, abs=5) for share in (0.6, 0.15, 0.1, 0.15)
    ]
    assert sum(len(getattr(workload, part)) for part in PARTS) == 400
    numbers, codes = workload.train.inputs
    assert numbers.dtype == torch.float32 and codes.dtype == torch.int64
    inputs, targets = workload.train.read_examples(range(4))
    outputs = call_model(workload.model(), inputs)
    assert outputs.shape == (4, *shape)
    assert workload.loss(outputs, targets).ndim == 0


def test_statistics_and_columns_are_those_of_the_training_split(mixed_file):
    workload = load_workload(build_config(mixed_file, "price", batch_size=16))
    numbers, codes = workload.train.inputs
    names = workload.spec.feature_names
    assert names == ["age", "age is missing", "paid", "day"]
    is_known = numbers[:, 1] == 0
    assert 0 < is_known.sum() < len(numbers)
    for column, rows in ((0, is_known), (2, slice(None)), (3, slice(None))):
        values = numbers[rows, column].double()
        assert values.mean().item() == pytest.approx(0, abs=1e-6)
        assert values.std(correction=0).item() == pytest.approx(1, abs=1e-6)
    assert workload.train.targets.std(correction=0).item() == pytest.approx(1, abs=1e-5)
    assert int(codes.min()) == 1 and codes.max(0).values.tolist() == [5, 2]
    assert set(workload.spec.ignored) == {"id", "key", "country"}


def test_every_row_is_in_one_split(tmp_path):
    table = friedman_table(101)
    table.to_csv(tmp_path / "points.csv", index=False)
    workload = load_workload(build_config(tmp_path / "points.csv", "y", batch_size=8))
    label = workload.spec.label
    targets = torch.cat([getattr(workload, part).targets for part in PARTS]).double().numpy()
    np.testing.assert_allclose(sorted(label.decode_numbers(targets)), sorted(table["y"]), rtol=1e-5)


def test_classes_are_in_proportion_in_every_split(mixed_file):
    workload = load_workload(build_config(mixed_file, "grade", batch_size=16))
    assert workload.classes == ("high", "low")
    share = (mixed_table(400)["grade"] == "low").mean()
    for part in PARTS:
        split = getattr(workload, part)
        assert abs(int(split.targets.sum()) - share * len(split)) <= 1


def test_splits_and_specification_are_equal_on_every_load(mixed_file):
    config = build_config(mixed_file, "price", batch_size=16)
    first, second = load_workload(config), load_workload(replace(config, seed=7))
    assert first.spec == second.spec
    for part in PARTS:
        for a, b in zip(getattr(first, part).inputs, getattr(second, part).inputs, strict=True):
            assert torch.equal(a, b)


def test_rows_of_a_request_are_encoded_as_those_of_the_file(mixed_file):
    workload = load_workload(build_config(mixed_file, "price", batch_size=16))
    spec = TableSpec.from_json(json.loads(json.dumps(workload.spec.to_json())))
    table = mixed_table(400)
    rows = table.assign(age=table["age"].astype(object).where(table["age"].notna(), None), day=table["day"].astype(str))
    rows = json.loads(json.dumps(rows.to_dict(orient="records")))
    numbers, codes = inputs_to_tensors(spec.encode_rows(rows))
    parts = [getattr(workload, part).inputs for part in PARTS]
    for encoded, column in ((numbers, 0), (codes, 1)):
        loaded = torch.cat([inputs[column] for inputs in parts])
        assert sorted(map(tuple, encoded.tolist())) == sorted(map(tuple, loaded.tolist()))


def test_a_number_with_known_noise_is_predicted_as_well_as_can_be(tmp_path):
    friedman_table(6000).to_csv(tmp_path / "points.csv", index=False)
    config = build_config(tmp_path / "points.csv", "y", batch_size=64, max_examples=90_000, noise_scale_every=0)
    training = Training(config)
    for _lap in training.laps():
        pass
    assert training.status == "max_examples"
    assert 0.92 <= training.evaluate(training.workload.test) <= 0.97  # the noise leaves 0.96


def test_a_class_of_categories_and_numbers_is_learned(mixed_file):
    config = build_config(mixed_file, "grade", batch_size=16, max_examples=240 * 20, noise_scale_every=0)
    metrics = [lap.metric for lap in laps(config) if lap.metric is not None]
    assert metrics[-1] >= 0.85


def test_an_unusable_table_label_or_model_is_refused(mixed_file):
    with raises_code("option-missing", "--label", "age, city"):
        load_workload(TrainConfig(workload="table", data=str(mixed_file)))
    with raises_code("path-missing", "none.csv"):
        load_workload(build_config(mixed_file.with_name("none.csv"), "y"))
    with raises_code("model-unknown", "resnet18"):
        load_workload(build_config(mixed_file, "price", model="resnet18"))


@pytest.mark.parametrize(
    ("file", "name"),
    [("points.csv", "points"), ("my points.csv.gz", "my-points"), ("a.b.parquet", "a.b"), (".csv", "table")],
)
def test_workload_is_named_after_its_file(tmp_path, file, name):
    table = friedman_table(60)
    table.to_parquet(tmp_path / file) if file.endswith("parquet") else table.to_csv(tmp_path / file, index=False)
    assert load_workload(build_config(tmp_path / file, "y", batch_size=4)).name == name


def test_a_table_behind_a_url_has_the_name_and_the_rows_of_its_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("EQUIPOISE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "points").mkdir()
    friedman_table(60).to_csv(tmp_path / "points" / "a.csv", index=False)
    local, remote = (
        load_workload(build_config(f"{scheme}{tmp_path}/points", "y", batch_size=4)) for scheme in ("", "file://")
    )
    assert remote.name == local.name == "points"
    assert remote.spec == local.spec
    assert torch.equal(remote.train.inputs, local.train.inputs)
