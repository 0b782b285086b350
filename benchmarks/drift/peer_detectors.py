"""The detectors of others on the same pictures: how often they are wrong where nothing changed, and what they cost.

Theirs run in an environment of their own (`make .venv/watchers/ready`) on arrays written for them: the reference's
features and figures, and windows of pictures, without drift and with it.
"""

import json
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.drift.image_pool import OTHER, Pool, model, pool
from equipoise.bundle.bundle import load_bundle
from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.dataset_verdict import compute_dataset_verdict
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.workloads.vending.renderer import Scene
from tests.support.ray_cluster import ROOT

OTHERS = ROOT / ".venv" / "watchers" / "bin" / "python"
WINDOW, WINDOWS = 200, 40
LONG = 20_000  # pictures of a stream
RUN_LENGTH = 2000.0
RUNS = 20  # pictures of one class in a row, on average


def table(known: ReferenceProfile, clean: Pool, given: Any) -> list[str]:
    """Ours and theirs on windows, then on streams."""
    if not OTHERS.exists():
        return ["the detectors of others are not there: make .venv/watchers/ready"]
    rng = np.random.default_rng(0)
    warm = pool(3000, Scene(kelvin=5000), OTHER)
    kinds = {
        "nothing": [independent(clean, WINDOW, rng) for _ in range(WINDOWS)],
        "in runs": [in_runs(clean, WINDOW, rng) for _ in range(WINDOWS)],
        "light of 5000 K": [independent(warm, WINDOW, rng) for _ in range(WINDOWS)],
    }
    streams = {"nothing": independent(clean, LONG, rng), "in runs": in_runs(clean, LONG, rng)}
    with TemporaryDirectory() as name:
        place = Path(name)
        written(place / "given.npz", kinds, streams)
        command = [str(OTHERS), str(ROOT / "benchmarks/drift/run_peers.py"), str(place), str(RUN_LENGTH)]
        subprocess.run(command, check=True)
        theirs = json.loads((place / "found.json").read_text())
    rows = {"ours": windows(known, kinds)} | theirs["windows"]
    lines = ["| windows of 200 | " + " | ".join(kinds) + " | CPU ms a window |", "|---|" + "--:|" * (len(kinds) + 1)]
    lines += [f"| {name} | " + " | ".join(cells(row, [*kinds])) + " |" for name, row in rows.items()]
    rows = {"ours": streamed(known, streams)} | theirs["streams"]
    lines += [
        "",
        f"| pictures to a false alarm in {LONG:,}, {RUN_LENGTH:,.0f} asked | nothing | in runs | CPU us a picture |",
    ]
    lines += ["|---|--:|--:|--:|"]
    return lines + [f"| {name} | " + " | ".join(cells(row, [*streams])) + " |" for name, row in rows.items()]


def cells(row: dict[str, Any], names: list[str]) -> list[str]:
    """Of a table; a sentence where something did not run."""
    if "why not" in row:
        return [row["why not"], *[""] * len(names)]
    return [*(row[name] for name in names), f"{row['cost']:.3g}"]


def independent(some: Pool, count: int, rng: np.random.Generator) -> Pool:
    """Pictures drawn by chance."""
    return some.some(rng.integers(0, len(some), count))


def in_runs(some: Pool, count: int, rng: np.random.Generator) -> Pool:
    """Pictures of one class in a row."""
    classes = int(some.labels.max()) + 1
    members = [np.flatnonzero(some.labels == one) for one in range(classes)]
    label, places = int(rng.integers(classes)), []
    for _ in range(count):
        label = int(rng.integers(classes)) if rng.random() < 1 / RUNS else label
        places.append(rng.choice(members[label]))
    return some.some(np.array(places))


def written(path: Path, kinds: dict[str, list[Pool]], streams: dict[str, Pool]) -> None:
    """What the others are given."""
    kept = load_bundle(model()).load_reference_arrays()
    found: dict[str, NDArray[Any]] = {"features": kept["features"], "logits": kept["logits"]}
    for name, windows in kinds.items():
        found[f"windows/{name}/features"] = np.stack([one.features for one in windows])
        found[f"windows/{name}/logits"] = np.stack([one.logits for one in windows])
    for name, stream in streams.items():
        found[f"streams/{name}/features"], found[f"streams/{name}/logits"] = stream.features, stream.logits
    np.savez(path, **found)


def windows(known: ReferenceProfile, kinds: dict[str, list[Pool]]) -> dict[str, Any]:
    """The judgement of a folder, as jobs.check makes it; wrong once in a hundred by design."""
    kept = load_bundle(model()).load_reference_arrays()
    called, base = kept["logits"].argmax(1), known.baseline
    found, begun = {}, process_time()
    for name, some in kinds.items():
        judged = [
            compute_dataset_verdict(
                known, one.seen(base.random_fourier, base.temperature), one.features, kept["features"], called
            )
            for one in some
        ]
        found[name] = f"{np.mean([one['state'] == 'drift' for one in judged]):.0%}"
    cost = (process_time() - begun) / sum(map(len, kinds.values())) * 1e3
    return found | {"cost": cost}


def streamed(known: ReferenceProfile, streams: dict[str, Pool]) -> dict[str, Any]:
    """All charts, in steps of 16; after an alarm they begin anew."""
    found, begun = {}, process_time()
    for name, stream in streams.items():
        watch, alarms = StreamDetector.start(known, RUN_LENGTH), 0
        seen = stream.seen(known.baseline.random_fourier, known.baseline.temperature)
        for start in range(0, LONG, 16):
            if watch.add_sums(known.baseline.sum_features(seen.select(list(range(start, start + 16)))), 0.0):
                watch, alarms = StreamDetector.start(known, RUN_LENGTH), alarms + 1
        found[name] = f"{LONG / alarms:,.0f}" if alarms else f"none in {LONG:,}"
    return found | {"cost": (process_time() - begun) / (LONG * len(streams)) * 1e6}
