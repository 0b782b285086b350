"""A bundle predicts the same on any machine, and is refused if any byte differs from what was published."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from equipoise.bundle.bundle import load_bundle
from equipoise.bundle.engines import ENGINES
from equipoise.bundle.folder import verify_bundle
from equipoise.config import TrainConfig
from equipoise.images.decode import load_image
from equipoise.storage.atomic import read_json, write_json
from equipoise.training.loop import Training
from jobs.publishing.publish import PublishRequest, publish_bundle
from tests.support.errors import raises_code
from tests.support.plan_documents import build_document, build_plan
from tests.support.sweep_folders import write_plan_folder, write_statistical_csv, write_system_csv


def generate_images(count):
    return torch.randint(0, 256, (count, 1, 16, 16), dtype=torch.uint8, generator=torch.manual_seed(count))


def test_onnxruntime_writes_no_telemetry(bundle_folder, tmp_path):
    script = "import sys; from equipoise.bundle.bundle import load_bundle; load_bundle(sys.argv[1], 'onnxruntime')"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "XDG_"))}
    command = (sys.executable, "-c", script, str(bundle_folder))
    subprocess.run(command, env=environment | {"HOME": str(tmp_path)}, check=True)
    assert not list(tmp_path.rglob("*onnxruntime*"))  # where it would store telemetry before sending it


def test_all_engines_give_the_same_predictions(bundle_folder):
    expected = load_bundle(bundle_folder, "eager").predict(generate_images(50))
    assert expected.scores.shape == (50, 10) and expected.features.shape == (50, 84)
    for name in ENGINES:
        prediction = load_bundle(bundle_folder, name).predict(generate_images(50))
        assert prediction.labels == expected.labels
        torch.testing.assert_close(prediction.scores, expected.scores, rtol=0, atol=1e-5)


def test_selected_engine_is_no_slower_than_eager_at_any_batch_size(bundle_folder):
    engine = verify_bundle(bundle_folder).engine
    times = {result.engine: result.seconds for result in engine.table}
    assert all(times[engine.name][batch] <= times["eager"][batch] for batch in times["eager"])


ISOLATED_SCRIPT = """
import json, sys
for name in ("jobs", "equipoise.training.loop", "equipoise.workloads", "ray"):
    sys.modules[name] = None  # importing it fails
import torch
from equipoise.bundle.bundle import load_bundle
model = load_bundle(sys.argv[1])
images = torch.randint(0, 256, (50, 1, 16, 16), dtype=torch.uint8, generator=torch.manual_seed(50))
prediction = model.predict(images)
print(json.dumps([prediction.labels, prediction.scores.tolist()]))
"""


def test_bundle_predicts_without_jobs_training_workloads_and_ray(bundle_folder, tmp_path):
    process = subprocess.run(
        [sys.executable, "-c", ISOLATED_SCRIPT, bundle_folder], capture_output=True, text=True, cwd=tmp_path
    )
    assert process.returncode == 0, process.stderr
    labels, scores = json.loads(process.stdout)
    expected = load_bundle(bundle_folder, "eager").predict(generate_images(50))
    assert labels == expected.labels
    np.testing.assert_allclose(scores, expected.scores.numpy(), rtol=0, atol=1e-5)


def test_reference_arrays_cover_the_examples_held_out_of_training(bundle_folder):
    reference = load_bundle(bundle_folder).load_reference_arrays()
    count = verify_bundle(bundle_folder).examples["reference"]
    assert len(reference["labels"]) == len(reference["logits"]) == len(reference["features"]) == count
    assert (reference["logits"].argmax(1) == reference["labels"]).mean() > 0.5


def test_model_card_lists_every_class_and_the_limits(bundle_folder):
    card = (bundle_folder / "card.md").read_text()
    assert all(f"| {digit} |" in card for digit in range(10))
    assert "## Limits" in card and "temperature" in card


def test_images_of_wrong_shape_or_dtype_are_refused(bundle_folder):
    model = load_bundle(bundle_folder)
    for images in (generate_images(2).float(), torch.zeros(2, 3, 16, 16, dtype=torch.uint8), generate_images(2)[0]):
        with raises_code("images-invalid", "digits"):
            model.predict(images)


def test_image_paths_and_bytes_are_preprocessed_as_in_training(bundle_folder, tmp_path):
    model = load_bundle(bundle_folder)
    photo = np.random.default_rng(0).integers(0, 256, (48, 80, 3)).astype(np.uint8)
    Image.fromarray(photo).save(tmp_path / "wide.png")
    images = model.preprocess([tmp_path / "wide.png", str(tmp_path / "wide.png"), (tmp_path / "wide.png").read_bytes()])
    assert images.dtype == torch.uint8 and tuple(images.shape[1:]) == model.shape
    assert torch.equal(images[0], load_image(tmp_path / "wide.png", model.shape))
    assert torch.equal(images[0], images[1]) and torch.equal(images[0], images[2])
    assert len(model.predict(images).labels) == 3
    assert len(model.preprocess([])) == 0


def test_unreadable_image_is_named_in_the_error(bundle_folder, tmp_path):
    model = load_bundle(bundle_folder)
    (tmp_path / "text.png").write_text("not a picture")
    for source, name in ((tmp_path / "text.png", "text.png"), (b"", "image 0"), (tmp_path / "none.png", "none.png")):
        with raises_code("image-undecodable", name):
            model.preprocess([source])


def test_training_starts_from_a_bundle(bundle_folder, run_folder):
    config = TrainConfig(workload="digits", batch_size=32, init_from=str(bundle_folder))
    training = Training(config)
    assert training.reused_classes == training.workload.classes
    for name, value in load_file(run_folder / "model.safetensors").items():
        assert torch.equal(training.model.state_dict()[name], value)


def test_bundle_files_are_readable_by_every_user(bundle_folder):
    assert {path.stat().st_mode & 0o777 for path in bundle_folder.iterdir()} == {0o644}


def test_logits_are_divided_by_the_temperature(bundle_folder):
    model = load_bundle(bundle_folder)
    logits, _ = model.run_engine(generate_images(20))
    assert model.temperature == model.manifest.metrics.temperature != 1
    expected = torch.softmax(logits / model.temperature, 1)
    torch.testing.assert_close(model.predict(generate_images(20)).scores, expected)


def test_existing_bundle_is_not_overwritten(bundle_folder, run_folder):
    with raises_code("path-exists"):
        publish_bundle(PublishRequest(run=run_folder, out=bundle_folder))


def test_folder_without_a_run_is_refused(tmp_path):
    with raises_code("run-unusable", "record.json"):
        publish_bundle(PublishRequest(run=tmp_path, out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


KILLED_PUBLISH_SCRIPT = """
import os, sys, threading, time
from pathlib import Path
from jobs.publishing.publish import PublishRequest, publish_bundle
run, folder = Path(sys.argv[1]), Path(sys.argv[2])

def kill_once_files_exist(out, min_files):
    while sum(file.is_file() for file in out.parent.rglob("*")) < min_files:
        time.sleep(0.001)
    os.kill(os.getpid(), 9)

for min_files in map(int, sys.argv[3:]):
    if os.fork():
        print(os.wait()[1])
        continue
    out = folder / str(min_files) / "digits"
    out.parent.mkdir()
    threading.Thread(target=kill_once_files_exist, args=(out, min_files), daemon=True).start()
    publish_bundle(PublishRequest(run=run, out=out, native=False, drift=False))
    os._exit(0)
"""


def test_killed_publish_leaves_a_complete_bundle_or_none(run_folder, tmp_path):
    numbers_of_files = ["0", "1", "4"]
    command = [sys.executable, "-c", KILLED_PUBLISH_SCRIPT, run_folder, tmp_path, *numbers_of_files]
    result = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3], check=True)
    assert result.stdout.split() == [str(int(signal.SIGKILL))] * len(numbers_of_files), result.stderr
    for name in numbers_of_files:
        if (out := tmp_path / name / "digits").exists():
            verify_bundle(out)


def test_bundle_is_loaded_from_a_file_url(bundle_folder):
    model = load_bundle(f"file://{bundle_folder}")
    assert model.predict(generate_images(3)).labels == load_bundle(bundle_folder).predict(generate_images(3)).labels


def test_url_without_a_bundle_or_of_unknown_scheme_is_refused(tmp_path):
    with raises_code("bundle-missing", "nothing"):
        load_bundle(f"file://{tmp_path}/nothing")
    with raises_code("path-missing", "memory://bucket/nothing"):
        load_bundle("memory://bucket/nothing")
    with raises_code("store-unsupported", "nonsense://"):
        load_bundle("nonsense://bucket/vending")


def test_name_that_cannot_be_used_in_a_url_is_refused(run_folder, tmp_path):
    with raises_code("option-format", "--name"):
        publish_bundle(PublishRequest(run=run_folder, out=tmp_path / "out", name="my/digits x"))


@pytest.mark.parametrize(
    ("contents", "code"),
    [
        (None, "path-missing"),
        ({"plan": "x"}, "plan-missing"),
        ({"schema": 1, "plan": None, "front": [], "warnings": ["measure more"]}, "plan-missing"),
        ({"schema": 1, "plan": {"workers": 2}, "front": [], "warnings": []}, "plan-invalid"),
        ({"schema": 2, "plan": None, "front": [], "warnings": []}, "plan-invalid"),
        (build_document(plan=build_plan(workers=1, batch=64)).to_json(), "plan-mismatch"),
    ],
)
def test_unusable_plan_is_refused(contents, code, run_folder, tmp_path):
    if contents is not None:
        write_json(tmp_path / "plan.json", contents)
    with raises_code(code):
        publish_bundle(PublishRequest(run=run_folder, out=tmp_path / "out", plan=tmp_path / "plan.json"))
    assert not (tmp_path / "out").exists()


def test_plan_is_kept_in_the_manifest_and_its_reason_in_the_card(run_folder, tmp_path):
    tables = {"system": write_system_csv(tmp_path / "s.csv"), "statistical": write_statistical_csv(tmp_path / "e.csv")}
    document, out = write_plan_folder(tmp_path, **tables), tmp_path / "bundle"
    trained = replace(document.plan, workers=1, batch=32, global_batch=32, lr=0.1)
    write_json(tmp_path / "plan.json", replace(document, plan=trained).to_json())
    publish_bundle(PublishRequest(run=run_folder, out=out, plan=tmp_path, drift=False, native=False))
    assert read_json(out / "bundle.json")["plan"] == read_json(tmp_path / "plan.json")
    assert f"The plan: {document.plan.why}" in (out / "card.md").read_text()


def test_chained_store_url_and_overlong_path_are_refused():
    with raises_code("store-unsupported", "zip://"):
        load_bundle("zip://x::file:///etc/passwd")
    with raises_code("bundle-missing"):
        load_bundle("a" * 5000)
