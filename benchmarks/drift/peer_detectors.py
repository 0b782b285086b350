"""Other projects' drift detectors on the same images: their false alarms, detections and CPU cost beside ours.

They run in an environment of their own (`make .venv/watchers/ready`) on arrays written for them: the reference's
features and logits, and windows and streams of images, without drift and with drift.
"""

import json
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.drift.image_pool import DRIFTED_FIRST_INDEX, ImagePool, publish_vending_bundle, render_image_pool
from equipoise.bundle.bundle import load_bundle
from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.dataset_verdict import compute_dataset_verdict
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.workloads.vending.renderer import Scene
from tests.support.ray_cluster import ROOT

PEER_PYTHON = ROOT / ".venv" / "watchers" / "bin" / "python"
WINDOW_IMAGES, WINDOW_COUNT = 200, 40
STREAM_IMAGES = 20_000
RUN_LENGTH = 2000.0
CLASS_RUN_LENGTH = 20  # images of one class in a row, on average


def build_table(profile: ReferenceProfile, clean: ImagePool, options: Any) -> list[str]:
    """Return the tables of our and their detectors, on windows and on streams."""
    if not PEER_PYTHON.exists():
        return ["cannot run the other detectors: they are not installed; run make .venv/watchers/ready"]
    rng = np.random.default_rng(0)
    warm = render_image_pool(3000, Scene(kelvin=5000), DRIFTED_FIRST_INDEX)
    windows = {
        "nothing": [draw_independent(clean, WINDOW_IMAGES, rng) for _ in range(WINDOW_COUNT)],
        "in runs": [draw_class_runs(clean, WINDOW_IMAGES, rng) for _ in range(WINDOW_COUNT)],
        "light of 5000 K": [draw_independent(warm, WINDOW_IMAGES, rng) for _ in range(WINDOW_COUNT)],
    }
    streams = {
        "nothing": draw_independent(clean, STREAM_IMAGES, rng),
        "in runs": draw_class_runs(clean, STREAM_IMAGES, rng),
    }
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_peer_inputs(folder / "given.npz", windows, streams)
        command = [str(PEER_PYTHON), str(ROOT / "benchmarks/drift/run_peers.py"), str(folder), str(RUN_LENGTH)]
        subprocess.run(command, check=True)
        peer_results = json.loads((folder / "found.json").read_text())
    rows = {"ours": measure_our_window_verdicts(profile, windows)} | peer_results["windows"]
    lines = [
        "| windows of 200 | " + " | ".join(windows) + " | CPU ms a window |",
        "|---|" + "--:|" * (len(windows) + 1),
    ]
    lines += [f"| {name} | " + " | ".join(format_cells(row, [*windows])) + " |" for name, row in rows.items()]
    rows = {"ours": measure_our_stream_alarms(profile, streams)} | peer_results["streams"]
    lines += [
        "",
        f"| pictures to a false alarm in {STREAM_IMAGES:,}, {RUN_LENGTH:,.0f} asked | nothing | in runs "
        "| CPU us a picture |",
    ]
    lines += ["|---|--:|--:|--:|"]
    return lines + [f"| {name} | " + " | ".join(format_cells(row, [*streams])) + " |" for name, row in rows.items()]


def format_cells(row: dict[str, Any], names: list[str]) -> list[str]:
    """Format the cells of one detector; give the reason where it did not run."""
    if "why not" in row:
        return [row["why not"], *[""] * len(names)]
    return [*(row[name] for name in names), f"{row['cost']:.3g}"]


def draw_independent(pool: ImagePool, count: int, rng: np.random.Generator) -> ImagePool:
    """Draw images independently of each other."""
    return pool.select(rng.integers(0, len(pool), count))


def draw_class_runs(pool: ImagePool, count: int, rng: np.random.Generator) -> ImagePool:
    """Draw images in runs of one class."""
    classes = int(pool.labels.max()) + 1
    members = [np.flatnonzero(pool.labels == label) for label in range(classes)]
    label, indices = int(rng.integers(classes)), []
    for _ in range(count):
        label = int(rng.integers(classes)) if rng.random() < 1 / CLASS_RUN_LENGTH else label
        indices.append(rng.choice(members[label]))
    return pool.select(np.array(indices))


def write_peer_inputs(path: Path, windows: dict[str, list[ImagePool]], streams: dict[str, ImagePool]) -> None:
    """Write the arrays that run_peers.py reads."""
    reference = load_bundle(publish_vending_bundle()).load_reference_arrays()
    arrays: dict[str, NDArray[Any]] = {"features": reference["features"], "logits": reference["logits"]}
    for name, pools in windows.items():
        arrays[f"windows/{name}/features"] = np.stack([pool.features for pool in pools])
        arrays[f"windows/{name}/logits"] = np.stack([pool.logits for pool in pools])
    for name, stream in streams.items():
        arrays[f"streams/{name}/features"], arrays[f"streams/{name}/logits"] = stream.features, stream.logits
    np.savez(path, **arrays)


def measure_our_window_verdicts(profile: ReferenceProfile, windows: dict[str, list[ImagePool]]) -> dict[str, Any]:
    """Return the share of windows that jobs.check would judge as drifted (1 in 100 by design), and CPU ms a window."""
    reference = load_bundle(publish_vending_bundle()).load_reference_arrays()
    predicted_classes, baseline = reference["logits"].argmax(1), profile.baseline
    row, start = {}, process_time()
    for name, pools in windows.items():
        verdicts = [
            compute_dataset_verdict(
                profile,
                pool.image_features(baseline.random_fourier, baseline.temperature),
                pool.features,
                reference["features"],
                predicted_classes,
            )
            for pool in pools
        ]
        row[name] = f"{np.mean([verdict.state == 'drift' for verdict in verdicts]):.0%}"
    cost = (process_time() - start) / sum(map(len, windows.values())) * 1e3
    return row | {"cost": cost}


def measure_our_stream_alarms(profile: ReferenceProfile, streams: dict[str, ImagePool]) -> dict[str, Any]:
    """Return the images between alarms, with all charts, steps of 16 and a reset after each alarm, and CPU us."""
    row, start_time = {}, process_time()
    for name, stream in streams.items():
        detector, alarms = StreamDetector.start(profile, RUN_LENGTH), 0
        features = stream.image_features(profile.baseline.random_fourier, profile.baseline.temperature)
        for start in range(0, STREAM_IMAGES, 16):
            if detector.add_sums(profile.baseline.sum_features(features.select(list(range(start, start + 16)))), 0.0):
                detector, alarms = StreamDetector.start(profile, RUN_LENGTH), alarms + 1
        row[name] = f"{STREAM_IMAGES / alarms:,.0f}" if alarms else f"none in {STREAM_IMAGES:,}"
    return row | {"cost": (process_time() - start_time) / (STREAM_IMAGES * len(streams)) * 1e6}
