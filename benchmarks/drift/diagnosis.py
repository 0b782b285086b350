"""What 300 pictures are said to have: other shares of classes, another look, or nothing."""

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.drift.image_pool import OTHER, Pool, model, pool
from equipoise.bundle.bundle import load_bundle
from equipoise.drift.diagnosis.dataset_verdict import compute_dataset_verdict
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.workloads.vending.renderer import Scene

PICTURES = 300
LOOKS = {
    "light of 4500 K": Scene(kelvin=4500),
    "gain of 0.8": Scene(exposure=float(np.log2(0.8))),
    "veil of 8 %": Scene(veil=0.08),
    "blur of 0.8 pixels": Scene(blur=0.8),
    "noise of 0.04": Scene(noise=0.04),
}


def table(known: ReferenceProfile, clean: Pool, streams: int) -> list[str]:
    """A row for each family."""
    arrays = load_bundle(model()).load_reference_arrays()
    mixes = [mixed(clean, seed) for seed in range(5 * streams)]
    families = {"shares of classes": mixes, "nothing": [alike(clean, seed) for seed in range(5 * streams)]}
    for name, scene in LOOKS.items():
        drifted = pool(3000, scene, OTHER)
        families[name] = [alike(drifted, seed) for seed in range(streams)]
    lines = [
        "| what changed | windows of 300 | said to have other shares | other look | nothing |",
        "|---|--:|--:|--:|--:|",
    ]
    right = [0, 0]
    for name, windows in families.items():
        said = Counter(kind(judged(known, arrays, one)) for one in windows)
        lines.append(f"| {name} | {len(windows)} | {said['shares']} | {said['look']} | {said['nothing']} |")
        if name != "nothing":
            right[0] += said["shares" if name == "shares of classes" else "look"]
            right[1] += len(windows)
    return [*lines, f"\nlabel or covariate right: {right[0] / right[1]:.1%}"]


def mixed(clean: Pool, seed: int) -> Pool:
    """Classes in shares of chance."""
    rng = np.random.default_rng(seed)
    classes = int(clean.labels.max()) + 1
    labels = rng.choice(classes, PICTURES, p=rng.dirichlet(np.ones(classes)))
    members = [np.flatnonzero(clean.labels == one) for one in range(classes)]
    return clean.some(np.array([rng.choice(members[label]) for label in labels]))


def alike(drawn: Pool, seed: int) -> Pool:
    """Classes as they come."""
    return drawn.some(np.random.default_rng(seed).integers(0, len(drawn), PICTURES))


def judged(known: ReferenceProfile, arrays: dict[str, NDArray[Any]], some: Pool) -> dict[str, Any]:
    """The verdict on a folder of these."""
    base = known.baseline
    seen = some.seen(base.random_fourier, base.temperature)
    return compute_dataset_verdict(known, seen, some.features, arrays["features"], arrays["logits"].argmax(1))


def kind(found: dict[str, Any]) -> str:
    """What it comes to."""
    if found["state"] != "drift":
        return "nothing"
    return "shares" if found["cause"] == "label shift" else "look"
