"""Bundles below the results folder with the facts of their cards; a manifest is read once as long as it stays."""

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from equipoise.bundle.evaluation import Evaluation
from equipoise.bundle.folder import MANIFEST_FILE, MODEL_CARD_FILE
from equipoise.bundle.manifest import Manifest, summarize_metrics
from equipoise.errors import EquipoiseError
from equipoise.formatting import first_error_line
from equipoise.proportions import wilson_interval
from equipoise.runs.listing import NON_RECORD_FOLDERS
from services.site.result_paths import resolve_result_path

WALK_COST_FACTOR = 20  # a listing is used for as many times as long as it took, so that it costs 5 % of a core at most
MIN_LISTING_SECONDS = 1.0
SKIPPED_FOLDERS = ("trials", *NON_RECORD_FOLDERS)


@dataclass(frozen=True, kw_only=True)
class BundleEntry:
    """Bundle in a folder, or the reason why it cannot be read."""

    path: str
    """path relative to the results folder"""
    manifest: Manifest | None = None
    problem: str = ""

    def describe_quality(self) -> str:
        """Return how well the model does on the test split, with the interval of an accuracy."""
        if self.manifest is None:
            return ""
        metrics = self.manifest.metrics
        if not isinstance(metrics, Evaluation) or not self.manifest.examples.get("test"):
            return summarize_metrics(metrics)
        low, high = wilson_interval(metrics.accuracy, self.manifest.examples["test"])
        return f"accuracy {metrics.accuracy:.1%} ({low:.1%} to {high:.1%})"


class BundleCatalog:
    """Bundles below a folder, found by a walk that is repeated when it is old."""

    def __init__(self, results: Path) -> None:
        self.results = results.absolute()
        self._entries: dict[str, tuple[int, BundleEntry]] = {}
        self._listed_until, self._lock = 0.0, threading.Lock()

    def list_bundles(self) -> list[BundleEntry]:
        """Return all bundles, the latest published first; those that cannot be read come last."""
        with self._lock:  # of many who look, one walks
            if time.monotonic() >= self._listed_until:
                started_at = time.monotonic()
                self._entries = {path: self._read_entry(path) for path in find_bundle_paths(self.results)}
                cost = time.monotonic() - started_at
                self._listed_until = started_at + max(MIN_LISTING_SECONDS, WALK_COST_FACTOR * cost)
        entries = [entry for _, entry in self._entries.values()]
        return sorted(entries, key=lambda entry: entry.manifest.published if entry.manifest else "", reverse=True)

    def find_bundle(self, path: str) -> BundleEntry:
        """Return the bundle at a path relative to the results folder; refuse another path."""
        resolve_bundle(self.results, path)
        return self._read_entry(path)[1]

    def read_card(self, path: str) -> str:
        """Return the model card of a bundle as Markdown; empty if it has none."""
        try:
            return (resolve_bundle(self.results, path) / MODEL_CARD_FILE).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return ""

    def _read_entry(self, path: str) -> tuple[int, BundleEntry]:
        file = self.results / path / MANIFEST_FILE
        try:
            changed_at = file.stat().st_mtime_ns
            known = self._entries.get(path)
            if known and known[0] == changed_at:
                return known
            return changed_at, BundleEntry(path=path, manifest=Manifest.read(file))
        except (EquipoiseError, OSError) as error:
            return 0, BundleEntry(path=path, problem=first_error_line(error))


def find_bundle_paths(results: Path) -> Iterator[str]:
    """Yield the paths of all bundles below a folder, relative to it; links to bundles are left out."""
    for folder, folders, files in os.walk(results):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS and not name.startswith("."))
        if MANIFEST_FILE in files:
            folders[:] = []
            yield Path(folder).relative_to(results).as_posix()


def resolve_bundle(results: Path, path: str) -> Path:
    """Return the folder of a bundle below the results folder; refuse a path that leads elsewhere."""
    folder = resolve_result_path(results, path)
    if not (folder / MANIFEST_FILE).is_file():
        raise EquipoiseError("bundle-missing", f"there is no bundle at {path[:200]!r}", "publish one with this --out")
    return folder
