"""Folder of a page that runs a model: any web server for files serves it, without a network behind it."""

import shutil
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

from dashboards.page import load_templates
from equipoise.bundle.folder import ONNX_FILE
from equipoise.bundle.manifest import Manifest, summarize_metrics
from equipoise.errors import EquipoiseError
from equipoise.storage.atomic import atomic_folder, write_json
from jobs.publishing.browser.page_manifest import PageManifest, build_page_manifest
from jobs.publishing.browser.runtime_files import RUNTIME_PACKAGE, RUNTIME_SHA256

PAGE_FILE, MODEL_FILE = "index.html", "model.json"
SHARED_ASSETS: Final = ("page.css", "try.css", "answer.js")
"""files that other pages use too"""
PAGE_SCRIPTS: Final = ("main.js", "worker.js", "model.js", "pixels.js", "placement.js", "resize.js")
LICENCE_FILES: Final = ("LICENSE", "ThirdPartyNotices.txt")
"""texts of the same project in the installed Python package, since the one for browsers comes without them"""


def write_page_folder(bundle: Path, manifest: Manifest, runtime: Path, out: Path) -> int:
    """Write the page of a verified bundle to the new folder `out` and return the bytes of its files."""
    page = build_page_manifest(manifest)
    if ONNX_FILE not in manifest.files:
        raise EquipoiseError(
            "bundle-invalid",
            f"cannot export a page for {bundle}: its model could not be exported to ONNX when it was published",
            "give the bundle of another model",
        )
    with atomic_folder(out) as folder:
        shutil.copyfile(bundle / ONNX_FILE, folder / ONNX_FILE)
        write_json(folder / MODEL_FILE, page.to_json())
        write_page_assets(folder, page, list_model_facts(manifest))
        copy_runtime(runtime, folder / RUNTIME_PACKAGE)
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def write_page_assets(folder: Path, page: PageManifest, facts: dict[str, str]) -> None:
    """Write the page itself with its scripts and styles."""
    templates = load_templates()
    html = templates.get_template(f"model_page/{PAGE_FILE}").render(manifest=page, facts=facts)
    (folder / PAGE_FILE).write_text(html, encoding="utf-8")
    asset: Any = templates.globals["asset"]
    for name in SHARED_ASSETS:
        (folder / name).write_text(asset(name), encoding="utf-8")
    for name in PAGE_SCRIPTS:
        (folder / name).write_text(asset(f"model_page/{name}"), encoding="utf-8")


def copy_runtime(runtime: Path, folder: Path) -> None:
    """Copy onnxruntime-web with the texts of its licences."""
    folder.mkdir()
    for name in RUNTIME_SHA256:
        shutil.copyfile(runtime / name, folder / name)
    for name in LICENCE_FILES:
        shutil.copyfile(str(distribution("onnxruntime").locate_file(f"onnxruntime/{name}")), folder / name)


def list_model_facts(manifest: Manifest) -> dict[str, str]:
    """Return what the page says of the model, by name."""
    image = manifest.boxes.image if manifest.boxes else manifest.image_input
    return {
        "version": manifest.version,
        "published": manifest.published,
        "on the test split": summarize_metrics(manifest.metrics),
        "input": f"{image.width} x {image.height} pixels",
        "classes": ", ".join(manifest.classes),
        "engine": f"{RUNTIME_PACKAGE}, one thread",
    }
