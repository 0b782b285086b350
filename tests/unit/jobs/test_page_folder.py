"""Folder of a page: it is complete or not there, and holds the model as it was published."""

import html
import json

import pytest

from equipoise.bundle.folder import verify_bundle
from jobs.publishing.browser.page_folder import list_model_facts, write_page_assets, write_page_folder
from jobs.publishing.browser.page_manifest import build_page_manifest
from tests.support.errors import raises_code
from tests.support.exported_pages import export_page
from tests.support.manifests import build_manifest


@pytest.fixture
def bundle(digits_bundle):
    return digits_bundle


def test_folder_holds_the_model_and_all_files_that_the_page_names(bundle, tmp_path):
    folder = export_page(bundle, tmp_path / "page")
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    text = "".join((folder / name).read_text() for name in names if name.endswith((".html", ".js")) and "/" not in name)
    scripts = {name for name in names if "/" not in name and name.endswith((".js", ".css"))}
    assert [name for name in scripts if f'{name}"' not in text] == []
    assert {"onnxruntime-web/LICENSE", "onnxruntime-web/ThirdPartyNotices.txt"} <= names
    assert (folder / "model.onnx").read_bytes() == (bundle / "model.onnx").read_bytes()
    manifest = verify_bundle(bundle)
    assert json.loads((folder / "model.json").read_text()) == build_page_manifest(manifest).to_json()
    assert {path.name for path in tmp_path.iterdir()} == {"page"}


def test_folder_that_exists_is_left_alone(bundle, tmp_path):
    with raises_code("path-exists"):
        write_page_folder(bundle, verify_bundle(bundle), tmp_path, tmp_path)


def test_bundle_without_onnx_has_no_page(bundle, tmp_path):
    manifest = build_manifest(files={"program.json": "0"})
    with raises_code("bundle-invalid", "ONNX"):
        write_page_folder(bundle, manifest, tmp_path, tmp_path / "page")


def test_names_of_a_bundle_are_escaped(tmp_path):
    manifest = build_manifest(name="</title><script>alert(1)</script>", classes=["<b>", "dog"])
    write_page_assets(tmp_path, build_page_manifest(manifest), list_model_facts(manifest))
    text = (tmp_path / "index.html").read_text()
    assert "<script>alert" not in text and "<b>" not in text
    assert html.escape("<b>, dog") in text
