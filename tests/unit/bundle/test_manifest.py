"""bundle.json keeps its keys and their order, is decoded strictly, and a folder that does not fit it is refused."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from equipoise.bundle.folder import MANIFEST_FILE, REQUIRED_FILES, manifest_digest, verify_bundle, write_manifest
from equipoise.bundle.kinds.boxes_input import BoxesInput
from equipoise.bundle.kinds.detection import DetectionEvaluation
from equipoise.bundle.kinds.language import LanguageEvaluation
from equipoise.bundle.kinds.regression import RegressionEvaluation
from equipoise.bundle.manifest import Manifest
from equipoise.bundle.tensor_spec import TensorSpec
from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.runs.target import Target
from equipoise.storage.atomic import read_json, write_json
from equipoise.tables.columns import TableColumn
from equipoise.tables.labels import TableLabel
from equipoise.tables.spec import TableSpec
from tests.support.errors import raises_code
from tests.support.manifests import IMAGE_INPUT, build_manifest

KEYS = [
    *("schema", "name", "workload", "kind", "classes", "image", "inputs", "outputs", "examples", "metrics", "config"),
    *("parameters",),
    *("target", "published", "status", "seen", "machine", "versions", "engine", "plan", "files", "digest"),
]
IMAGE, METRICS = asdict(IMAGE_INPUT), build_manifest().to_json()["metrics"]
REMEDY = {"changes": [{"cause": "exposure", "detail": "darker", "value": -1.0}], "weights": None}


@pytest.fixture
def write_bundle(tmp_path):
    """Return a function that writes a bundle whose files are empty except for bundle.json."""

    def write(**changes):
        for name in REQUIRED_FILES:
            (tmp_path / name).touch()
        write_manifest(tmp_path, build_manifest(**changes))
        return tmp_path

    return write


@pytest.fixture
def edit_manifest(write_bundle):
    """Return a function that edits the contents of a bundle.json and seals them again."""

    def edit(change):
        folder = write_bundle()
        contents = read_json(folder / MANIFEST_FILE)
        change(contents)
        write_json(folder / MANIFEST_FILE, contents | {"digest": manifest_digest(contents)})
        return folder

    return edit


@pytest.mark.parametrize(("side", "is_valid"), [(0, False), (1, True), (2048, True), (2049, False)])
def test_sides_of_an_input_are_limited(edit_manifest, side, is_valid):
    def resize(manifest):
        manifest["image"].update(height=side, width=side)
        manifest["inputs"][0]["shape"][2:] = [side, side]

    folder = edit_manifest(resize)
    if is_valid:
        assert Manifest.read(folder / MANIFEST_FILE).image_input.shape[1:] == (side, side)
    else:
        with pytest.raises(EquipoiseError):
            Manifest.read(folder / MANIFEST_FILE)


def test_channels_of_an_input_are_one_to_four(edit_manifest):
    def set_channels(manifest, channels):
        manifest["image"].update(channels=channels)
        manifest["inputs"][0]["shape"][1] = channels

    for channels in (1, 4):
        folder = edit_manifest(lambda manifest, channels=channels: set_channels(manifest, channels))
        assert Manifest.read(folder / MANIFEST_FILE).image_input.channels == channels
    for channels in (0, 5):
        folder = edit_manifest(lambda manifest, channels=channels: set_channels(manifest, channels))
        with pytest.raises(EquipoiseError):
            Manifest.read(folder / MANIFEST_FILE)


def error_code(call, *arguments):
    with pytest.raises(EquipoiseError) as error:
        call(*arguments)
    assert len(str(error.value).splitlines()) == 1
    return error.value.code


@pytest.mark.parametrize("remedy", [None, REMEDY])
def test_manifest_is_read_as_it_was_written(write_bundle, remedy):
    folder = write_bundle(remedy=remedy, plan={"plan": {"batch": 8}})
    manifest, contents = verify_bundle(folder), read_json(folder / MANIFEST_FILE)
    assert json.dumps(manifest.to_json()) == json.dumps(contents)
    assert list(contents) == (KEYS if remedy is None else [*KEYS[:19], "remedy", *KEYS[19:]])
    assert manifest.remedy == remedy and manifest.plan == {"plan": {"batch": 8}}
    assert manifest.files.keys() == REQUIRED_FILES and len(manifest.version) == 12
    assert manifest.engine.table[0].seconds == {1: 0.1, 8: 0.3, 16: 0.4}  # as texts, 16 comes before 8
    assert contents["machine"] == {"processor": "EPYC", "cores": 2}
    assert manifest.image_input.shape == (3, 32, 48)


def test_version_changes_with_every_value(write_bundle):
    first = verify_bundle(write_bundle()).version
    assert verify_bundle(write_bundle(seen=641)).version != first


def test_direction_of_the_metric_is_in_the_file_where_a_lower_one_is_better(write_bundle):
    assert "lower_is_better" not in build_manifest().to_json()
    assert build_manifest(lower_is_better=True).to_json()["lower_is_better"] is True
    assert verify_bundle(write_bundle(target=0.2, lower_is_better=True)).goal == Target(value=0.2, lower_is_better=True)
    assert verify_bundle(write_bundle(target=None)).goal == Target(value=None)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": 3},
        {"target": "high"},
        {"lower_is_better": None},
        {"classes": "abc"},
        {"classes": ["cat", "cat"]},
        {"classes": [1, 2]},
        {"image": IMAGE | {"channels": 5}},
        {"image": IMAGE | {"height": 10**9}},
        {"image": IMAGE | {"type": "float32"}},
        {"image": IMAGE | {"channels": True}},
        {"image": {name: value for name, value in IMAGE.items() if name != "width"}},
        {"metrics": METRICS | {"temperature": 0}},
        {"metrics": METRICS | {"temperature": "1"}},
        {"engine": {"why": "", "table": []}},
        {"engine": {"name": [], "why": "", "table": []}},
        {"files": ["card.md"]},
        {"plan": "plan.json"},
        {"config": None},
    ],
)
def test_wrong_value_is_refused(edit_manifest, changes):
    folder = edit_manifest(lambda contents: contents.update(changes))
    assert error_code(verify_bundle, folder) == "bundle-invalid"


@pytest.mark.parametrize("key", [key for key in KEYS if key not in ("schema", "plan", "files", "digest")])
def test_missing_key_is_refused(edit_manifest, key):
    assert error_code(verify_bundle, edit_manifest(lambda contents: contents.pop(key))) == "bundle-invalid"


def test_bundle_of_a_version_with_other_options_is_served_but_not_adapted(edit_manifest):
    config = asdict(TrainConfig(workload="folder"))
    lacking = {name: value for name, value in config.items() if name != "lr"}
    for other, reason in (
        (lacking, "its config lacks lr"),
        (config | {"dropout": 0.1}, "its config has the unknown option dropout"),
        (config | {"lr": "fast"}, "lr"),
        (config | {"lr": -1}, "lr"),
        ({}, "lacks"),
    ):
        manifest = verify_bundle(edit_manifest(lambda contents, other=other: contents.update(config=other, added=1)))
        assert manifest.classes == ["cat", "dog"]
        with raises_code("bundle-invalid", reason):
            manifest.decode_config()
    assert build_manifest(config=config).decode_config() == TrainConfig(workload="folder")


def test_folder_that_does_not_fit_its_manifest_is_refused(write_bundle, edit_manifest, tmp_path):
    assert error_code(verify_bundle, tmp_path / "none") == "bundle-missing"
    assert error_code(verify_bundle, tmp_path / ("x" * 300)) == "bundle-missing"
    assert error_code(verify_bundle, edit_manifest(lambda contents: contents.update(schema=1))) == "bundle-version"
    assert error_code(verify_bundle, edit_manifest(lambda contents: contents.pop("schema"))) == "bundle-missing"
    assert error_code(verify_bundle, edit_manifest(lambda contents: contents.pop("files"))) == "bundle-changed"
    folder = edit_manifest(lambda contents: contents["files"].pop("card.md"))
    assert error_code(verify_bundle, folder) == "bundle-changed"  # the file is there and not listed
    (folder / "card.md").unlink()
    assert error_code(verify_bundle, folder) == "bundle-invalid"
    (write_bundle() / "card.md").write_text("changed")
    assert error_code(verify_bundle, folder) == "bundle-changed"


def test_digest_is_checked_before_the_manifest_is_decoded(write_bundle):
    path = write_bundle() / MANIFEST_FILE
    path.write_text(path.read_text().replace('"name": "pets"', '"name": 3'))
    assert error_code(verify_bundle, path.parent) == "bundle-changed"


def test_classes_must_be_unique_when_a_manifest_is_built():
    assert error_code(lambda: build_manifest(classes=["cat", "cat"])) == "bundle-invalid"
    assert error_code(Manifest.from_json, {"schema": 2}, Path("bundle.json")) == "bundle-invalid"


def build_table_manifest(kind="number", **changes):
    label = TableLabel(name="price", kind=kind, classes=("low", "high") if kind == "class" else ())
    spec = TableSpec(columns=(TableColumn(name="age", kind="number"),), label=label)
    regression = RegressionEvaluation(r2=0.5, rmse=1.0, half_width=None, coverage=None)
    fields = {
        "kind": "table",
        "image": None,
        "table": spec,
        "inputs": (TensorSpec(name="numbers", dtype="float32", shape=(-1, 1)),),
        "outputs": (TensorSpec(name="values", dtype="float32", shape=(-1,)),),
        "classes": [],
        "metrics": regression,
    }
    return build_manifest(**fields | changes)


def test_manifest_of_a_table_is_read_as_it_was_written():
    contents = build_table_manifest().to_json()
    assert "image" not in contents and "text" not in contents and contents["metrics"]["type"] == "regression"
    assert Manifest.from_json(json.loads(json.dumps(contents)), Path("bundle.json")) == build_table_manifest()


@pytest.mark.parametrize(
    "changes",
    [
        {"image": IMAGE_INPUT},
        {"table": None},
        {"kind": "text"},
        {"kind": "image"},
        {"classes": ["low"]},
        {"metrics": LanguageEvaluation(nats_per_token=1.0, tokens=10)},
        {"inputs": ()},
        {"inputs": (TensorSpec(name="numbers", dtype="float32", shape=(-1, 2)),)},
        {"outputs": ()},
    ],
)
def test_section_inputs_and_metrics_must_be_those_of_the_kind(changes):
    assert error_code(lambda: build_table_manifest(**changes)) == "bundle-invalid"


def test_classifier_needs_a_score_for_each_class():
    scores = TensorSpec(name="logits", dtype="float32", shape=(-1, 2))
    known = {"classes": ["low", "high"], "metrics": build_manifest().metrics}
    assert build_table_manifest("class", **known, outputs=(scores,)).classification.temperature == 1.25
    for outputs in ((replace(scores, shape=(-1, 3)),), (replace(scores, shape=(-1,)),)):
        assert error_code(lambda outputs=outputs: build_table_manifest("class", **known, outputs=outputs))


def test_section_of_another_kind_is_refused_where_images_are_needed():
    manifest = build_table_manifest()
    for name in ("image_input", "classification"):
        assert error_code(getattr, manifest, name) == "bundle-kind"


def build_detector_manifest(**changes):
    boxes = BoxesInput(image=IMAGE_INPUT, max_boxes=9)
    evaluation = DetectionEvaluation(
        average_precision=0.6,
        average_precision_50=0.9,
        by_class={"cat": 0.6},
        threshold=0.4,
        precision=0.8,
        recall=0.7,
    )
    features = TensorSpec(name="features", dtype="float32", shape=(-1, 5))
    fields = {"kind": "boxes", "image": None, "boxes": boxes, "metrics": evaluation}
    return build_manifest(**fields | {"outputs": (*boxes.list_box_outputs(), features)} | changes)


def test_manifest_of_a_detector_is_read_as_it_was_written():
    manifest = build_detector_manifest()
    contents = manifest.to_json()
    assert (
        "image" not in contents and contents["metrics"]["type"] == "detection" and contents["boxes"]["max_boxes"] == 9
    )
    assert Manifest.from_json(json.loads(json.dumps(contents)), Path("bundle.json")) == manifest
    assert manifest.detection.threshold == 0.4
    for name in ("image_input", "classification"):
        assert error_code(getattr, manifest, name) == "bundle-kind"
    assert error_code(getattr, build_manifest(), "detection") == "bundle-kind"


@pytest.mark.parametrize(
    "changes",
    [
        {"boxes": None},
        {"image": IMAGE_INPUT},
        {"metrics": build_manifest().metrics},
        {"outputs": ()},
        {"outputs": BoxesInput(image=IMAGE_INPUT, max_boxes=9).list_box_outputs()},
        {"boxes": BoxesInput(image=IMAGE_INPUT, max_boxes=8)},
        {"inputs": ()},
    ],
)
def test_outputs_and_metrics_must_be_those_of_a_detector(changes):
    assert error_code(lambda: build_detector_manifest(**changes)) == "bundle-invalid"
