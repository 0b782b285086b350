"""The code blocks of the README and of every page run, page by page and in order, in a folder that pages share.

Two processes may each take some of the pages, in folders of their own.
"""

import shutil
import time

import pytest
from PIL import Image

from equipoise.config import TrainConfig
from equipoise.workloads import load_workload
from tests.support.bundles import publish_run, train_short_run
from tests.support.device_tables import build_device_steps, build_energy_steps
from tests.support.doc_fences import list_fences
from tests.support.doc_pages import list_pages
from tests.support.doc_shell import SUITE, DocShell, find_missing_keys, read_json_values
from tests.support.ray_cluster import ROOT

NUM_PHOTOS = 100


def list_runnable_pages():
    """Return the pages with a block that this suite runs."""
    return [
        page
        for page in list_pages()
        if page.exists()
        and any("id" in x.attributes and x.attributes.get("in", SUITE) == SUITE for x in list_fences(page))
    ]


def build_page_parameters():
    """Return the pages; those that use one run or the bundle of it stay in one process, and so in one folder."""
    return [
        pytest.param(page, marks=pytest.mark.xdist_group("digits")) if "/digits" in join_commands(page) else page
        for page in list_runnable_pages()
    ]


def join_commands(page):
    """Return all that a page's reader would type."""
    return "".join(fence.text for fence in list_fences(page) if "id" in fence.attributes)


@pytest.fixture(scope="session")
def shell(cluster, tmp_path_factory):
    """Folder of a reader: the project's manifests, tables of measurements, and images of digits."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "services").symlink_to(ROOT / "services")
    for name in ("system.csv", "statistical.csv"):
        shutil.copy(ROOT / "tests" / "data" / "digits" / name, folder)
    build_device_steps().to_csv(folder / "devices.csv", index=False)
    build_energy_steps().to_csv(folder / "energy.csv", index=False)
    shutil.copytree(ROOT / "tests" / "data" / "exchanges" / "two-hosts", folder / "hosts")
    (folder / "photos").mkdir()
    images = load_workload(TrainConfig(workload="digits")).validation.inputs
    for index, image in enumerate(images[:NUM_PHOTOS]):
        Image.fromarray(image[0].numpy()).save(folder / "photos" / f"{index:03}.png")
    (folder / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "digit.png", folder)
    for name in ("digit.png", "sklearn_program.py"):
        shutil.copy(ROOT / "examples" / name, folder / "examples")
    return DocShell(folder, cluster)


def prepare_results(folder, page):
    """Make what earlier pages would have made, where a page is tested alone."""
    commands = join_commands(page)
    run, bundle = folder / "runs" / "digits", folder / "bundles" / "digits"
    needs_bundle = "bundle=bundles/digits" in commands or "--bundle bundles/digits" in commands
    if (needs_bundle or "--run runs/digits" in commands or "--init-from runs/digits" in commands) and not run.exists():
        train_short_run(run)
    if needs_bundle and not bundle.exists():
        publish_run(run, bundle, drift=True)


@pytest.mark.slow
@pytest.mark.parametrize("page", build_page_parameters(), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_work(shell, page):
    prepare_results(shell.folder, page)
    start = time.monotonic()
    outputs = shell.run_page(page)
    print(f"{time.monotonic() - start:6.1f} s  in all")
    for fence in list_fences(page):
        if name := fence.attributes.get("output"):
            shown, printed = read_json_values(fence.text), read_json_values(outputs[name])
            assert list(find_missing_keys(shown, printed)) == [], f"{fence.text}\n{outputs[name]}"


def test_missing_key_is_found():
    assert list(find_missing_keys([{"a": 1, "...": 0}], [{"a": 2, "b": 3}])) == []
    assert list(find_missing_keys([{"a": {"c": 1}}], [{"a": {"b": 3}}])) == ["[0].a.c"]
    assert list(find_missing_keys({"a": []}, {"a": 1})) == [".a"]
