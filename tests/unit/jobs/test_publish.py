"""Parts of a publication: which runs may be published, which images are used, and what the manifest says."""

import importlib.metadata
import platform
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from equipoise.bundle.engine_results import EngineEntry
from equipoise.bundle.engines import ENGINES
from equipoise.bundle.evaluation import Evaluation
from equipoise.config import TrainConfig
from equipoise.hardware_facts import HardwareFacts
from equipoise.runs.folder import read_finished_run
from equipoise.runs.record import Lap, Record
from equipoise.storage.atomic import write_json
from equipoise.workloads import ImageWorkload, Split
from jobs.publish import describe_missed_target
from jobs.publishing.kinds.image_publication import ImagePublication
from jobs.publishing.publish import (
    PublishRequest,
    benchmark_bundle_engines,
    build_manifest,
    load_model,
    publish_bundle,
)
from jobs.publishing.reference_arrays import (
    build_reference_arrays,
    predict_split,
    sample_images,
    sample_profile_outputs,
)
from tests.support.errors import raises_code
from tests.support.plan_documents import write_plan_json
from tests.unit.jobs.test_plan_options import PLAN

LAP = Lap(
    step=1,
    steps=1,
    seen=64,
    examples=64,
    workers=1,
    lr=0.1,
    loss=1.0,
    seconds=1.0,
    data_seconds=0,
    compute_seconds=1,
    exchange_seconds=0,
    metric=0.5,
)
RECORD = Record(
    config=TrainConfig(workload="tiny", lr=0.125),
    machine=HardwareFacts(),
    laps=[LAP, replace(LAP, step=2, seen=128, metric=0.4)],
    status="max_examples",
    target=0.75,
    examples_to_target=None,
    test=None,
)


def build_split(count, shape=(1, 1, 1)):
    """Build a split of images whose values count up, and labels that do."""
    images = torch.arange(count).remainder(256).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, *shape)
    return Split(images, torch.arange(count))


def build_model():
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))


def build_workload(**changes):
    fields = {
        "name": "tiny",
        "classes": ("cat", 7),
        **{name: build_split(count, (1, 2, 3)) for name, count in (("train", 9), ("validation", 4), ("test", 5))},
        "reference": build_split(6, (1, 2, 3)),
        "model": build_model,
        "target": 0.9,
        "mean": (0.25,),
        "std": (0.5,),
    }
    return ImageWorkload(**fields | changes)


@pytest.fixture
def run_folder(tmp_path):
    """Write the folder of a finished run and return it."""
    save_file(build_model().state_dict(), tmp_path / "model.safetensors")
    write_json(tmp_path / "record.json", RECORD.to_json())
    return tmp_path


@pytest.mark.parametrize("name", ["a", "A1._-", "x" * 100, "0"])
def test_name_that_fits_a_url_is_accepted(tmp_path, name):
    with raises_code("run-unusable"):  # only then is the run looked at
        publish_bundle(PublishRequest(run=tmp_path, out=tmp_path / "out", name=name))


@pytest.mark.parametrize("name", ["", "x" * 101, "a b", "-a", ".a", "a/b", "é", "a\n"])
def test_name_that_does_not_fit_a_url_is_refused(tmp_path, name):
    with raises_code("option-format", repr(name)):
        publish_bundle(PublishRequest(run=tmp_path, out=tmp_path / "out", name=name))


def test_locations_are_validated_first(tmp_path):
    for field in ("run", "plan", "out"):
        request = PublishRequest(**{"run": tmp_path, "out": tmp_path / "out"} | {field: Path("s3:/a:secret@b/x")})
        with raises_code("url-secret"):
            publish_bundle(request)


def test_run_with_other_settings_than_the_plan_is_refused(run_folder):
    plan = write_plan_json(run_folder / "plan.json", PLAN)
    with raises_code("plan-mismatch", "--batch-size"):
        publish_bundle(PublishRequest(run=run_folder, plan=plan, out=run_folder / "out"))
    assert not (run_folder / "out").exists()


def test_finished_run_may_be_published(run_folder):
    assert read_finished_run(run_folder, "publish") == RECORD


@pytest.mark.parametrize("name", ["record.json", "model.safetensors"])
def test_run_that_lacks_a_file_is_refused(run_folder, name):
    (run_folder / name).unlink()
    with raises_code("run-unusable", run_folder, name):
        read_finished_run(run_folder, "publish")


def test_failed_run_is_refused_with_its_reason(run_folder):
    write_json(run_folder / "record.json", replace(RECORD, status="failed", reason="out of memory").to_json())
    with raises_code("run-unusable", "failed: out of memory"):
        read_finished_run(run_folder, "publish")


def test_run_that_has_not_ended_is_refused(run_folder):
    write_json(run_folder / "record.json", replace(RECORD, status="running").to_json())
    with raises_code("run-unusable", "running"):
        read_finished_run(run_folder, "publish")


def test_model_is_loaded_with_the_name_of_its_classifier(run_folder):
    model, head = load_model(run_folder, build_workload())
    assert head == "3" and not model.training
    save_file(model.state_dict(), run_folder / "copy.safetensors")
    assert (run_folder / "copy.safetensors").read_bytes() == (run_folder / "model.safetensors").read_bytes()
    assert load_model(run_folder, build_workload(classes=("a", "b", "c")))[1] is None


def test_model_is_published_in_single_precision(run_folder):
    save_file(build_model().double().state_dict(), run_folder / "model.safetensors")
    model, _ = load_model(run_folder, build_workload(model=lambda: build_model().double().train()))
    assert {value.dtype for value in model.parameters()} == {torch.float32} and not model.training


def test_weights_of_another_model_are_refused(run_folder):
    for model in (nn.Linear(2, 3), nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))):
        with raises_code("run-damaged", run_folder, "tiny"):
            load_model(run_folder, build_workload(model=lambda model=model: model))
    (run_folder / "model.safetensors").write_bytes(b"damaged")
    with raises_code("run-damaged"):
        load_model(run_folder, build_workload())


def test_sampled_images_are_spread_over_the_split():
    split = build_split(101)
    assert sample_images(split, 3).flatten().tolist() == [0, 50, 100]
    assert sample_images(split, 1).flatten().tolist() == [0]
    assert torch.equal(sample_images(split, 500), split.inputs)
    workload = build_workload(test=split)
    assert ImagePublication(workload).sample_inputs(split, 2)[0].flatten().tolist() == [0, 100]


def test_outputs_of_a_split_are_those_of_its_images_in_order():
    sizes = []

    def engine(images):
        sizes.append(len(images))
        values = images.flatten(1).float()
        return torch.cat([values, -values], 1), values + 1000

    logits, features, labels = predict_split(engine, build_split(130))
    assert logits[:, 0].tolist() == list(range(130)) == (-logits[:, 1]).tolist()
    assert features[:, 0].tolist() == list(range(1000, 1130)) and labels.tolist() == list(range(130))
    assert sizes == [64, 64, 2]


def test_reference_keeps_at_most_200_images():
    workload = build_workload(reference=build_split(203))
    outputs = np.arange(406.0).reshape(203, 2), np.arange(203.0)[:, None], np.arange(203)
    arrays = build_reference_arrays(workload, outputs)
    assert arrays.keys() == {"logits", "features", "labels", "pictures", "places"}
    assert arrays["logits"].dtype == arrays["features"].dtype == np.float32
    assert arrays["labels"].tolist() == list(range(203)) and arrays["logits"][5].tolist() == [10, 11]
    assert arrays["places"].tolist() == arrays["pictures"].ravel().tolist()
    assert len(arrays["places"]) == 200 and arrays["places"][[0, -1]].tolist() == [0, 202]


@pytest.mark.parametrize(("count", "used"), [(7, 7), (20_000, 20_000), (20_003, 20_000)])
def test_profile_is_built_from_at_most_20000_images_with_their_outputs(count, used):
    split = build_split(count)
    logits, features = np.arange(count)[:, None], -np.arange(count)[:, None]
    outputs = sample_profile_outputs(split, logits, features, split.targets.numpy())
    assert len(outputs.labels) == used and outputs.labels[[0, -1]].tolist() == [0, count - 1]
    assert np.array_equal(outputs.labels, outputs.logits[:, 0]) and np.array_equal(
        outputs.labels, -outputs.features[:, 0]
    )
    assert np.array_equal(outputs.pictures.numpy().ravel(), outputs.labels % 256)


class CountingModule(nn.Module):
    """Model that counts the images it has seen."""

    seen = 0

    def forward(self, images):
        self.seen += len(images)
        return images.flatten(1).float(), images.flatten(1).float()


@pytest.mark.parametrize(("count", "seen"), [(10, 10), (1000, 1000), (1005, 1000)])
def test_engines_are_compared_on_at_most_1000_images(tmp_path, count, seen):
    module = CountingModule()
    results = benchmark_bundle_engines(
        ImagePublication(build_workload(test=build_split(count))), module, tmp_path, include_native=False
    )
    assert module.seen == seen
    assert [(result.engine, result.agrees) for result in results] == [(name, False) for name in ENGINES]


@pytest.fixture
def manifest_of():
    """Return a function that builds the manifest of a record and a workload."""
    evaluation = Evaluation(0.9, {"cat": 1.0, "7": 0.8}, 0.05, 0.02, 1.25)
    entry = EngineEntry(name="eager", why="alone", table=[])

    def build(name=None, record=RECORD, workload=None):
        manifest = build_manifest(
            name,
            record,
            publication := ImagePublication(workload or build_workload()),
            publication.wrap_model(build_model(), "3"),
            evaluation,
            entry,
        )
        assert (manifest.metrics, manifest.engine) == (evaluation, entry)
        return manifest

    return build


def test_manifest_describes_the_workload_and_the_model(manifest_of):
    manifest = manifest_of()
    assert (manifest.name, manifest.workload, manifest.classes) == ("tiny", "tiny", ["cat", "7"])
    assert manifest.kind == "image" and manifest.image_input.shape == (1, 2, 3)
    preprocessing = manifest.image_input.preprocessing
    assert (preprocessing.mean, preprocessing.std) == ([0.25], [0.5])
    assert [tensor.shape for tensor in manifest.inputs] == [(-1, 1, 2, 3)]
    assert [tensor.shape for tensor in manifest.outputs] == [(-1, 2), (-1, 4)]
    assert manifest.examples == {"train": 9, "validation": 4, "reference": 6, "test": 5}
    assert manifest.parameters == 6 * 4 + 4 + 4 * 2 + 2
    assert manifest_of("pets").name == "pets"
    assert (manifest.remedy, manifest.plan) == (None, None)


def test_manifest_describes_the_run(manifest_of):
    manifest = manifest_of()
    assert manifest.decode_config() == RECORD.config and manifest.config == asdict(RECORD.config)
    assert (manifest.target, manifest.status, manifest.seen) == (0.75, "max_examples", 128)
    best = replace(RECORD, config=replace(RECORD.config, keep="best"))
    assert manifest_of(record=best).seen == 64
    assert manifest_of(record=replace(RECORD, laps=[])).seen == 0
    assert not manifest.lower_is_better
    falling = manifest_of(record=replace(RECORD, target=None, lower_is_better=True))
    assert (falling.target, falling.lower_is_better) == (None, True)


def test_run_that_missed_its_target_is_published_with_a_note():
    assert describe_missed_target(RECORD) == "the run did not reach its target of at least 0.75 (status: max examples)"
    assert "at most 0.2 " in describe_missed_target(replace(RECORD, target=0.2, lower_is_better=True))
    assert describe_missed_target(replace(RECORD, status="reached_target")) == ""
    assert describe_missed_target(replace(RECORD, target=None)) == ""


def test_manifest_has_the_time_and_the_versions(manifest_of):
    manifest = manifest_of()
    published = datetime.fromisoformat(manifest.published)
    assert published.tzinfo == UTC and published.microsecond == 0
    assert abs((datetime.now(UTC) - published).total_seconds()) < 3600
    assert manifest.versions == {"python": platform.python_version()} | {
        name: importlib.metadata.version(name) for name in ("equipoise", "torch", "torchvision", "onnxruntime", "numpy")
    }
    assert manifest.machine.device == "cpu"
