"""A bundle predicts the same on any machine, and is refused if any byte differs from what was published."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file, save_file

from equipoise.bundle.bundle import load_bundle
from equipoise.bundle.engines import ENGINES
from equipoise.bundle.folder import MANIFEST_FILE, file_sha256, manifest_digest, verify_bundle
from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.images.decode import load_image
from equipoise.storage.atomic import read_json, write_json
from equipoise.training.loop import Training
from jobs.publishing.publish import PublishRequest, publish_bundle
from tests.support import bundles
from tests.support.errors import raises_code
from tests.support.plan_documents import build_document, build_plan
from tests.support.sweep_folders import write_plan_folder, write_statistical_csv, write_system_csv


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """Folder of a short training run on digits, as jobs.train writes it."""
    return bundles.train_short_run(tmp_path_factory.mktemp("runs") / "x")


@pytest.fixture(scope="module")
def bundle_folder(run_folder, tmp_path_factory):
    return bundles.publish_run(run_folder, tmp_path_factory.mktemp("bundles") / "digits")


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


def build_manifest_edit(change):
    """Return a function that changes bundle.json and updates its digest, as an edit by hand would."""

    def damage(folder, _):
        manifest = read_json(folder / MANIFEST_FILE)
        change(manifest)
        manifest["digest"] = manifest_digest(manifest)
        (folder / MANIFEST_FILE).write_text(json.dumps(manifest))

    return damage


def choose_file(folder, draw, names=None):
    return folder / draw(st.sampled_from(names or sorted(path.name for path in folder.iterdir())))


def flip_bit(folder, draw):
    path = choose_file(folder, draw)
    content = bytearray(path.read_bytes())
    index = draw(st.integers(0, len(content) - 1))
    content[index] ^= 1 << draw(st.integers(0, 7))
    path.write_bytes(content)


def truncate_file(folder, draw):
    path = choose_file(folder, draw)
    path.write_bytes(path.read_bytes()[: draw(st.integers(0, path.stat().st_size - 1))])


def append_bytes(folder, draw):
    path = choose_file(folder, draw)
    path.write_bytes(path.read_bytes() + draw(st.binary(min_size=1, max_size=20)))


def replace_content(folder, draw):
    choose_file(folder, draw).write_bytes(draw(st.binary(max_size=200)))


def swap_two_files(folder, draw):
    names = draw(st.permutations(sorted(path.name for path in folder.iterdir())))
    first, second = folder / names[0], folder / names[1]
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


def replace_file_by_folder(folder, draw):
    path = choose_file(folder, draw)
    path.unlink()
    path.mkdir()


def replace_card_by_link(folder, _):
    (folder / "card.md").unlink()
    (folder / "card.md").symlink_to("/etc/hostname")


def build_file_edit(name, change):
    """Return a function that changes a file of a bundle and updates all digests."""

    def damage(folder, _):
        manifest = read_json(folder / MANIFEST_FILE)
        change(folder / name)
        manifest["files"][name] = file_sha256(folder / name)
        manifest["engine"]["name"] = "eager"
        manifest["digest"] = manifest_digest(manifest)
        (folder / MANIFEST_FILE).write_text(json.dumps(manifest))

    return damage


def write_nan_weights(path):
    save_file({name: value * float("nan") for name, value in load_file(path).items()}, path)


def write_single_output_program(path):
    """Make a program return a single output, however many images it gets."""
    steps = json.loads(path.read_text())
    end = len(steps) - 1
    select_first = {"do": "slice.Tensor", "take": [steps[end]["output"][0], 0, 0, 1], "named": {}}
    path.write_text(json.dumps([*steps[:end], select_first, {"output": [{"step": end}, steps[end]["output"][1]]}]))


def replace_last_step(path, last_step):
    path.write_text(json.dumps([*json.loads(path.read_text())[:-1], last_step]))


DAMAGE_FUNCTIONS = {
    "bit flipped": flip_bit,
    "file truncated": truncate_file,
    "bytes appended": append_bytes,
    "content replaced": replace_content,
    "two files swapped": swap_two_files,
    "folder instead of a file": replace_file_by_folder,
    "file missing": lambda folder, draw: choose_file(folder, draw).unlink(),
    "empty folder": lambda folder, draw: [path.unlink() for path in folder.iterdir()],
    "folder missing": lambda folder, draw: shutil.rmtree(folder),
    "file instead of the folder": lambda folder, draw: (shutil.rmtree(folder), folder.write_text("no")),
    "manifest is a list": lambda folder, draw: (folder / MANIFEST_FILE).write_text("[]"),
    "manifest is not JSON": lambda folder, draw: (folder / MANIFEST_FILE).write_text('{"schema": 1'),
    "manifest nested too deeply": lambda folder, draw: (folder / MANIFEST_FILE).write_text("[" * 100_000),
    "unknown schema": build_manifest_edit(lambda manifest: manifest.update(schema=1)),
    "schema missing": build_manifest_edit(lambda manifest: manifest.pop("schema")),
    "file list missing": build_manifest_edit(lambda manifest: manifest.pop("files")),
    "weights not listed": build_manifest_edit(lambda manifest: manifest["files"].pop("weights.safetensors")),
    "listed file outside the folder": build_manifest_edit(
        lambda manifest: manifest["files"].update({"../secret": "0"})
    ),
    "classes are text": build_manifest_edit(lambda manifest: manifest.update(classes="abc")),
    "too few classes": build_manifest_edit(lambda manifest: manifest.update(classes=["one"])),
    "unknown engine": build_manifest_edit(lambda manifest: manifest["engine"].update(name="magic")),
    "engine name missing": build_manifest_edit(lambda manifest: manifest["engine"].pop("name")),
    "wrong number of channels": build_manifest_edit(lambda manifest: manifest["image"].update(channels=3)),
    "input width missing": build_manifest_edit(lambda manifest: manifest["image"].pop("width")),
    "repeated classes": build_manifest_edit(lambda manifest: manifest.update(classes=["one"] * 10)),
    "classes are numbers": build_manifest_edit(lambda manifest: manifest.update(classes=list(range(10)))),
    "engine name is a list": build_manifest_edit(lambda manifest: manifest["engine"].update(name=[])),
    "temperature of zero": build_manifest_edit(lambda manifest: manifest["metrics"].update(temperature=0)),
    "too many channels": build_manifest_edit(lambda manifest: manifest["image"].update(channels=2048)),
    "additional file": lambda folder, draw: (folder / "more.txt").write_text("x"),
    "symbolic link": replace_card_by_link,
    "weights are NaN": build_file_edit("weights.safetensors", write_nan_weights),
    "one output for all images": build_file_edit("program.json", write_single_output_program),
    "features are text": build_file_edit(
        "program.json", lambda path: replace_last_step(path, {"output": [{"step": 0}, "x"]})
    ),
    "huge input": build_manifest_edit(lambda manifest: manifest["image"].update(width=10**9)),
}


@pytest.mark.parametrize("kind", DAMAGE_FUNCTIONS)
@settings(
    max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(data=st.data())
def test_damaged_bundle_is_refused_in_one_sentence(kind, bundle_folder, tmp_path, data):
    before = {path.name: path.read_bytes() for path in bundle_folder.iterdir()}
    folder = tmp_path / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        folder.unlink()
    shutil.copytree(bundle_folder, folder)
    DAMAGE_FUNCTIONS[kind](folder, data.draw)
    after = {path.name: path.read_bytes() for path in folder.glob("*") if path.is_file()} if folder.is_dir() else {}
    if normalize_files(after) == normalize_files(before):
        return  # the drawn damage changed nothing
    with pytest.raises(EquipoiseError) as error:
        load_bundle(folder)
    assert len(str(error.value).splitlines()) == 1 and str(error.value).strip()


def normalize_files(files):
    """Return the files without white space at the end of the manifest, which changes nothing."""
    return files | {MANIFEST_FILE: files.get(MANIFEST_FILE, b"").rstrip()}


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
    numbers_of_files = ["0", "1", "2", "4"]
    command = [sys.executable, "-c", KILLED_PUBLISH_SCRIPT, run_folder, tmp_path, *numbers_of_files]
    result = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3], check=True)
    assert result.stdout.split() == [str(int(signal.SIGKILL))] * 4, result.stderr
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
