"""Verdicts on windows of 300 images: other class shares, another appearance, or no drift."""

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.drift.image_pool import DRIFTED_FIRST_INDEX, ImagePool, publish_vending_bundle, render_image_pool
from equipoise.bundle.bundle import load_bundle
from equipoise.drift.diagnosis.dataset_verdict import compute_dataset_verdict
from equipoise.drift.diagnosis.verdict import DatasetVerdict
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.workloads.vending.renderer import Scene

WINDOW_IMAGES = 300
DRIFTED_SCENES = {
    "light of 4500 K": Scene(kelvin=4500),
    "gain of 0.8": Scene(exposure=float(np.log2(0.8))),
    "veil of 8 %": Scene(veil=0.08),
    "blur of 0.8 pixels": Scene(blur=0.8),
    "noise of 0.04": Scene(noise=0.04),
}


def build_table(profile: ReferenceProfile, clean: ImagePool, streams: int) -> list[str]:
    """Return a table with the verdicts for each kind of change."""
    arrays = load_bundle(publish_vending_bundle()).load_reference_arrays()
    shifted = [draw_random_class_shares(clean, seed) for seed in range(5 * streams)]
    windows_by_change = {
        "shares of classes": shifted,
        "nothing": [draw_window(clean, seed) for seed in range(5 * streams)],
    }
    for name, scene in DRIFTED_SCENES.items():
        drifted = render_image_pool(3000, scene, DRIFTED_FIRST_INDEX)
        windows_by_change[name] = [draw_window(drifted, seed) for seed in range(streams)]
    lines = [
        "| what changed | windows of 300 | said to have other shares | other look | nothing |",
        "|---|--:|--:|--:|--:|",
    ]
    right = [0, 0]
    for name, windows in windows_by_change.items():
        counts = Counter(classify_verdict(compute_window_verdict(profile, arrays, window)) for window in windows)
        lines.append(f"| {name} | {len(windows)} | {counts['shares']} | {counts['look']} | {counts['nothing']} |")
        if name != "nothing":
            right[0] += counts["shares" if name == "shares of classes" else "look"]
            right[1] += len(windows)
    return [*lines, f"\nlabel or covariate right: {right[0] / right[1]:.1%}"]


def draw_random_class_shares(clean: ImagePool, seed: int) -> ImagePool:
    """Draw a window whose class shares are themselves drawn at random."""
    rng = np.random.default_rng(seed)
    classes = int(clean.labels.max()) + 1
    labels = rng.choice(classes, WINDOW_IMAGES, p=rng.dirichlet(np.ones(classes)))
    members = [np.flatnonzero(clean.labels == label) for label in range(classes)]
    return clean.select(np.array([rng.choice(members[label]) for label in labels]))


def draw_window(pool: ImagePool, seed: int) -> ImagePool:
    """Draw a window of images with the class shares of the pool."""
    return pool.select(np.random.default_rng(seed).integers(0, len(pool), WINDOW_IMAGES))


def compute_window_verdict(
    profile: ReferenceProfile, arrays: dict[str, NDArray[Any]], window: ImagePool
) -> DatasetVerdict:
    """Return the verdict on a window, judged like a folder of images."""
    baseline = profile.baseline
    features = window.image_features(baseline.random_fourier, baseline.temperature)
    return compute_dataset_verdict(profile, features, window.features, arrays["features"], arrays["logits"].argmax(1))


def classify_verdict(verdict: DatasetVerdict) -> str:
    """Return the column of a verdict: shares, look or nothing."""
    if verdict.state != "drift":
        return "nothing"
    return "shares" if verdict.cause == "label shift" else "look"
