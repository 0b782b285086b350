"""A bundle answers anywhere, and is refused when a byte of it is not as it was published."""

import json
import os
import shutil
import subprocess
import sys
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
from equipoise.bundle.manifest import MANIFEST_FILE, file_sha256, manifest_digest, verify_bundle
from equipoise.config import TrainConfig
from equipoise.images.decode import load_image
from equipoise.storage.atomic import read_json
from equipoise.training.loop import Training
from jobs.publishing.publish import PublishRequest, publish_bundle
from tests.support import bundles


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run on digits, as jobs.train leaves it."""
    return bundles.train_short_run(tmp_path_factory.mktemp("runs") / "x")


@pytest.fixture(scope="module")
def published(run, tmp_path_factory):
    return bundles.publish_run(run, tmp_path_factory.mktemp("bundles") / "digits")


def pictures(count):
    return torch.randint(0, 256, (count, 1, 16, 16), dtype=torch.uint8, generator=torch.manual_seed(count))


def test_nobody_is_told_of_a_model_that_answers(published, tmp_path):
    script = "import sys; from equipoise.bundle.bundle import load_bundle; load_bundle(sys.argv[1], 'onnxruntime')"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "XDG_"))}
    command = (sys.executable, "-c", script, str(published))
    subprocess.run(command, env=environment | {"HOME": str(tmp_path)}, check=True)
    assert not list(tmp_path.rglob("*onnxruntime*"))  # where it would keep what it is about to tell its maker


def test_every_engine_answers_the_same(published):
    expected = load_bundle(published, "eager").predict(pictures(50))
    assert expected.scores.shape == (50, 10) and expected.features.shape == (50, 84)
    for name in ENGINES:
        answer = load_bundle(published, name).predict(pictures(50))
        assert answer.labels == expected.labels
        torch.testing.assert_close(answer.scores, expected.scores, rtol=0, atol=1e-5)


def test_the_engine_chosen_is_no_slower_than_eager_at_any_batch(published):
    engine = verify_bundle(published)["engine"]
    times = {one["engine"]: one["seconds"] for one in engine["table"]}
    assert all(times[engine["name"]][batch] <= times["eager"][batch] for batch in times["eager"])


ELSEWHERE = """
import json, sys
for name in ("jobs", "equipoise.training.loop", "equipoise.workloads", "ray"):
    sys.modules[name] = None  # an import of it fails
import torch
from equipoise.bundle.bundle import load_bundle
held = load_bundle(sys.argv[1])
pictures = torch.randint(0, 256, (50, 1, 16, 16), dtype=torch.uint8, generator=torch.manual_seed(50))
answer = held.predict(pictures)
print(json.dumps([answer.labels, answer.scores.tolist()]))
"""


def test_it_answers_where_neither_jobs_nor_the_loop_can_be_imported(published, tmp_path):
    done = subprocess.run([sys.executable, "-c", ELSEWHERE, published], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    labels, scores = json.loads(done.stdout)
    here = load_bundle(published, "eager").predict(pictures(50))
    assert labels == here.labels
    np.testing.assert_allclose(scores, here.scores.numpy(), rtol=0, atol=1e-5)


def test_the_reference_holds_what_was_kept_from_training(published):
    held = load_bundle(published).load_reference_arrays()
    count = verify_bundle(published)["examples"]["reference"]
    assert len(held["labels"]) == len(held["logits"]) == len(held["features"]) == count
    np.testing.assert_allclose(held["confusion"].sum(0), 1)
    assert (held["logits"].argmax(1) == held["labels"]).mean() > 0.5


def test_the_card_names_every_class_and_the_limits(published):
    text = (published / "card.md").read_text()
    assert all(f"| {digit} |" in text for digit in range(10))
    assert "## Limits" in text and "temperature" in text


def test_pictures_of_another_shape_or_type_are_refused(published):
    held = load_bundle(published)
    for wrong in (pictures(2).float(), torch.zeros(2, 3, 16, 16, dtype=torch.uint8), pictures(2)[0]):
        with pytest.raises(ValueError, match="digits takes a batch of uint8 images"):
            held.predict(wrong)


def test_photographs_by_path_and_as_bytes_are_the_pictures_of_training(published, tmp_path):
    model = load_bundle(published)
    wide = np.random.default_rng(0).integers(0, 256, (48, 80, 3)).astype(np.uint8)
    Image.fromarray(wide).save(tmp_path / "wide.png")
    found = model.preprocess([tmp_path / "wide.png", str(tmp_path / "wide.png"), (tmp_path / "wide.png").read_bytes()])
    assert found.dtype == torch.uint8 and tuple(found.shape[1:]) == model.shape
    assert torch.equal(found[0], load_image(tmp_path / "wide.png", model.shape))
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    assert len(model.predict(found).labels) == 3
    assert len(model.preprocess([])) == 0


def test_a_photograph_that_cannot_be_read_is_named(published, tmp_path):
    model = load_bundle(published)
    (tmp_path / "text.png").write_text("not a picture")
    for source, name in ((tmp_path / "text.png", "text.png"), (b"", "image 0"), (tmp_path / "none.png", "none.png")):
        with pytest.raises(ValueError, match=rf"cannot read .*{name}: "):
            model.preprocess([source])


def test_another_run_starts_from_a_bundle(published, run):
    before = TrainConfig(workload="digits", batch_size=32, init_from=str(published))
    training = Training(before)
    assert training.reused_classes == training.workload.classes
    for name, value in load_file(run / "model.safetensors").items():
        assert torch.equal(training.model.state_dict()[name], value)


def test_whoever_runs_a_service_may_read_what_another_published(published):
    assert {path.stat().st_mode & 0o777 for path in published.iterdir()} == {0o644}


def test_scores_are_divided_by_the_temperature(published):
    model = load_bundle(published)
    logits, _ = model.run_engine(pictures(20))
    assert model.temperature == model.manifest["metrics"]["temperature"] != 1
    expected = torch.softmax(logits / model.temperature, 1)
    torch.testing.assert_close(model.predict(pictures(20)).scores, expected)


def test_a_bundle_is_never_written_over(published, run):
    with pytest.raises(ValueError, match="exists already"):
        publish_bundle(PublishRequest(run=run, out=published))


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"it has no record\.json; give the folder of a finished run"):
        publish_bundle(PublishRequest(run=tmp_path, out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def facts_changed(change):
    """Damage to bundle.json whose digest is right again: by hand, not by accident."""

    def damage(folder, _):
        facts = read_json(folder / MANIFEST_FILE)
        change(facts)
        facts["digest"] = manifest_digest(facts)
        (folder / MANIFEST_FILE).write_text(json.dumps(facts))

    return damage


def one_of(folder, draw, names=None):
    return folder / draw(st.sampled_from(names or sorted(path.name for path in folder.iterdir())))


def flipped(folder, draw):
    path = one_of(folder, draw)
    held = bytearray(path.read_bytes())
    place = draw(st.integers(0, len(held) - 1))
    held[place] ^= 1 << draw(st.integers(0, 7))
    path.write_bytes(held)


def truncated(folder, draw):
    path = one_of(folder, draw)
    path.write_bytes(path.read_bytes()[: draw(st.integers(0, path.stat().st_size - 1))])


def lengthened(folder, draw):
    path = one_of(folder, draw)
    path.write_bytes(path.read_bytes() + draw(st.binary(min_size=1, max_size=20)))


def replaced(folder, draw):
    one_of(folder, draw).write_bytes(draw(st.binary(max_size=200)))


def swapped(folder, draw):
    names = draw(st.permutations(sorted(path.name for path in folder.iterdir())))
    first, second = folder / names[0], folder / names[1]
    held = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(held)


def a_folder_instead(folder, draw):
    path = one_of(folder, draw)
    path.unlink()
    path.mkdir()


def linked(folder, _):
    (folder / "card.md").unlink()
    (folder / "card.md").symlink_to("/etc/hostname")


def resealed(name, change):
    """Damage to a file whose digests are all right again."""

    def damage(folder, _):
        facts = read_json(folder / MANIFEST_FILE)
        change(folder / name)
        facts["files"][name] = file_sha256(folder / name)
        facts["engine"]["name"] = "eager"
        facts["digest"] = manifest_digest(facts)
        (folder / MANIFEST_FILE).write_text(json.dumps(facts))

    return damage


def not_a_number(path):
    save_file({name: value * float("nan") for name, value in load_file(path).items()}, path)


def one_answer(path):
    """A program that says the same single thing however many pictures there are."""
    steps = json.loads(path.read_text())
    end = len(steps) - 1
    first = {"do": "slice.Tensor", "take": [steps[end]["output"][0], 0, 0, 1], "named": {}}
    path.write_text(json.dumps([*steps[:end], first, {"output": [{"step": end}, steps[end]["output"][1]]}]))


def rewritten(path, last):
    path.write_text(json.dumps([*json.loads(path.read_text())[:-1], last]))


DAMAGE = {
    "a bit flipped": flipped,
    "cut short": truncated,
    "something added": lengthened,
    "other content": replaced,
    "two files swapped": swapped,
    "a folder instead": a_folder_instead,
    "a file missing": lambda folder, draw: one_of(folder, draw).unlink(),
    "empty": lambda folder, draw: [path.unlink() for path in folder.iterdir()],
    "no folder": lambda folder, draw: shutil.rmtree(folder),
    "a file instead": lambda folder, draw: (shutil.rmtree(folder), folder.write_text("no")),
    "a list": lambda folder, draw: (folder / MANIFEST_FILE).write_text("[]"),
    "no JSON": lambda folder, draw: (folder / MANIFEST_FILE).write_text('{"schema": 1'),
    "deep JSON": lambda folder, draw: (folder / MANIFEST_FILE).write_text("[" * 100_000),
    "another schema": facts_changed(lambda facts: facts.update(schema=2)),
    "no schema": facts_changed(lambda facts: facts.pop("schema")),
    "no files": facts_changed(lambda facts: facts.pop("files")),
    "a file not listed": facts_changed(lambda facts: facts["files"].pop("weights.safetensors")),
    "a file elsewhere": facts_changed(lambda facts: facts["files"].update({"../secret": "0"})),
    "no classes": facts_changed(lambda facts: facts.update(classes="abc")),
    "fewer classes": facts_changed(lambda facts: facts.update(classes=["one"])),
    "an unknown engine": facts_changed(lambda facts: facts["engine"].update(name="magic")),
    "no engine": facts_changed(lambda facts: facts["engine"].pop("name")),
    "another input": facts_changed(lambda facts: facts["input"].update(channels=3)),
    "no input": facts_changed(lambda facts: facts["input"].pop("width")),
    "classes twice": facts_changed(lambda facts: facts.update(classes=["one"] * 10)),
    "classes of numbers": facts_changed(lambda facts: facts.update(classes=list(range(10)))),
    "an engine that is a list": facts_changed(lambda facts: facts["engine"].update(name=[])),
    "a temperature of zero": facts_changed(lambda facts: facts["metrics"].update(temperature=0)),
    "many channels": facts_changed(lambda facts: facts["input"].update(channels=2048)),
    "a file that was not published": lambda folder, draw: (folder / "more.txt").write_text("x"),
    "a link": linked,
    "weights that are no numbers": resealed("weights.safetensors", not_a_number),
    "one answer to all": resealed("program.json", one_answer),
    "features that are text": resealed("program.json", lambda path: rewritten(path, {"output": [{"step": 0}, "x"]})),
    "a huge input": facts_changed(lambda facts: facts["input"].update(width=10**9)),
}


@pytest.mark.parametrize("kind", DAMAGE)
@settings(
    max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(data=st.data())
def test_damage_of_any_kind_is_refused_in_one_sentence(kind, published, tmp_path, data):
    before = {path.name: path.read_bytes() for path in published.iterdir()}
    folder = tmp_path / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        folder.unlink()
    shutil.copytree(published, folder)
    DAMAGE[kind](folder, data.draw)
    after = {path.name: path.read_bytes() for path in folder.glob("*") if path.is_file()} if folder.is_dir() else {}
    if told(after) == told(before):
        return  # what was drawn changed nothing
    with pytest.raises(ValueError, match=r".") as refused:
        load_bundle(folder)
    assert len(str(refused.value).splitlines()) == 1 and str(refused.value).strip()


def told(files):
    """Files by content; a blank behind the facts says nothing."""
    return files | {MANIFEST_FILE: files.get(MANIFEST_FILE, b"").rstrip()}


KILLED = """
import os, sys, threading, time
from pathlib import Path
from jobs.publishing.publish import PublishRequest, publish
from tests.support import bundles
delay, run, out = float(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
threading.Thread(target=lambda: (time.sleep(delay), os.kill(os.getpid(), 9)), daemon=True).start()
publish(PublishRequest(run=run, out=out, native=False))
"""


@pytest.mark.parametrize("delay", [0.1, 1.0, 3.0, 6.0])
def test_publishing_that_is_killed_leaves_a_whole_bundle_or_none(delay, run, tmp_path):
    out = tmp_path / "digits"
    subprocess.run(
        [sys.executable, "-c", KILLED, str(delay), run, out], capture_output=True, cwd=Path(__file__).parents[3]
    )
    if out.exists():
        verify_bundle(out)


def test_a_bundle_behind_a_url_is_read_as_one_on_disk(published):
    held = load_bundle(f"file://{published}")
    assert held.predict(pictures(3)).labels == load_bundle(published).predict(pictures(3)).labels


def test_a_url_that_holds_nothing_or_of_an_unknown_kind_is_refused(tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path}/nothing is not a bundle"):
        load_bundle(f"file://{tmp_path}/nothing")
    with pytest.raises(ValueError, match="cannot read memory://bucket/nothing"):
        load_bundle("memory://bucket/nothing")
    with pytest.raises(ValueError, match="nonsense:// is not a supported object store"):
        load_bundle("nonsense://bucket/vending")


def test_a_name_that_cannot_stand_in_an_address_is_refused(run, tmp_path):
    with pytest.raises(ValueError, match=r"cannot use --name .* in a URL"):
        publish_bundle(PublishRequest(run=run, out=tmp_path / "out", name="my/digits x"))


def test_a_plan_that_is_none_is_refused_by_its_own_name(run, tmp_path):
    (tmp_path / "plan.json").write_text('{"plan": "x"}')
    for plan, words in ((tmp_path / "none", "no such file"), (tmp_path, "recommends no plan")):
        with pytest.raises(ValueError, match=words):
            publish_bundle(PublishRequest(run=run, out=tmp_path / "out", plan=plan))
    assert not (tmp_path / "out").exists()


def test_a_chain_of_stores_is_refused():
    with pytest.raises(ValueError, match="is a chain of stores"):
        load_bundle("zip://x::file:///etc/passwd")
    with pytest.raises(ValueError, match="is not a bundle"):
        load_bundle("a" * 5000)
