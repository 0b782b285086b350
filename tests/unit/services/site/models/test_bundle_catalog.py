"""Bundles below the results folder: which are found, what is said of them, and which paths are refused."""

import pytest

from equipoise.bundle.folder import MANIFEST_FILE, MODEL_CARD_FILE
from equipoise.storage.atomic import write_json
from services.site.models.bundle_catalog import BundleCatalog
from tests.support.errors import raises_code
from tests.support.manifests import build_manifest


def write_bundle(folder, **fields):
    folder.mkdir(parents=True)
    write_json(folder / MANIFEST_FILE, build_manifest(**fields).to_json())
    (folder / MODEL_CARD_FILE).write_text("# card")


@pytest.fixture
def catalog(tmp_path):
    write_bundle(tmp_path / "results" / "bundles" / "a", published="2026-11-01T00:00:00+00:00")
    write_bundle(tmp_path / "results" / "deep" / "er" / "b", published="2026-11-02T00:00:00+00:00")
    write_bundle(tmp_path / "results" / ".site" / "hidden")
    write_bundle(tmp_path / "outside")
    return BundleCatalog(tmp_path / "results")


def list_paths(catalog):
    return [entry.path for entry in catalog.list_bundles()]


def test_bundles_are_found_at_any_depth_the_latest_first(catalog):
    assert list_paths(catalog) == ["deep/er/b", "bundles/a"]
    assert catalog.read_card("bundles/a") == "# card"


def test_an_accuracy_has_its_interval(catalog):
    manifest = catalog.find_bundle("bundles/a").manifest
    text = catalog.find_bundle("bundles/a").describe_quality()
    assert text.startswith(f"accuracy {manifest.metrics.accuracy:.1%} (") and text.endswith("%)")


def test_a_damaged_bundle_is_listed_last_with_the_reason(catalog):
    damaged = catalog.results / "zz"
    damaged.mkdir()
    (damaged / MANIFEST_FILE).write_text("{")
    entries = catalog.list_bundles()
    assert [entry.path for entry in entries] == ["deep/er/b", "bundles/a", "zz"]
    assert "zz" in entries[-1].problem and entries[-1].describe_quality() == ""


@pytest.mark.parametrize("path", ["../outside", "/etc", ".site/hidden", "bundles/../../outside", "a\0b", "x" * 2000])
def test_paths_out_of_the_results_folder_are_refused(catalog, path):
    with raises_code("path-kind"):
        catalog.find_bundle(path)


def test_a_link_that_leads_out_is_refused_and_a_folder_without_a_bundle_too(catalog):
    (catalog.results / "link").symlink_to(catalog.results.parent / "outside")
    with raises_code("path-kind"):
        catalog.find_bundle("link")
    with raises_code("bundle-missing"):
        catalog.find_bundle("bundles")
    with raises_code("path-missing"):
        catalog.find_bundle("nothing")
