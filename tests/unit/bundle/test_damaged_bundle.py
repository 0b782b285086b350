"""A damaged bundle is refused in one sentence, whatever was damaged, and nothing of it is run."""

import json
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from equipoise.bundle.bundle import load_bundle
from equipoise.bundle.folder import MANIFEST_FILE, file_sha256, manifest_digest
from equipoise.errors import EquipoiseError
from equipoise.storage.atomic import read_json


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
