"""Verdicts on the same sets of images stay what they were, with every figure in them."""

import numpy as np
import pytest
import torch

from tests.support.drift_data import CLASSES, render_shapes
from tests.support.recorded import assert_as_recorded
from tests.unit.drift.test_dataset_verdict import (
    add_noise,
    add_veil,
    build_lamp_transform,
    compute_checked_verdict,
    compute_reference_outputs,
)


def darken(images):
    return (images.float() * 0.8).byte()


SETS = {
    "clean": lambda images: images,
    "dark": darken,
    "warm": build_lamp_transform(4500),
    "noise": add_noise,
    "veil": add_veil,
    "dark-and-warm": lambda images: darken(build_lamp_transform(4500)(images)),
    "class-gone": lambda images: render_shapes(120, 81, np.random.default_rng(0).integers(1, CLASSES, 120))[0],
    "strange": lambda images: torch.cat([images[:100], 255 - images[:20]]),
}


@pytest.fixture(scope="module")
def reference_outputs():
    return compute_reference_outputs()


@pytest.mark.parametrize("name", SETS)
def test_verdict_is_as_recorded(name, reference_outputs):
    verdict = compute_checked_verdict(SETS[name](render_shapes(120, 80)[0]), reference_outputs, permutation_count=620)
    accuracy, charts = verdict.accuracy, {chart.name: chart for chart in verdict.charts}
    effects = [chart.effect for chart in charts.values() if chart.effect]
    values = {
        "sentence": verdict.why,
        "causes": [f"{effect.cause} {effect.detail} {effect.unit}" for effect in verdict.effects],
        "effects": [
            [effect.value, *(np.nan if x is None else x for x in (effect.low, effect.high, effect.explained))]
            for effect in verdict.effects
        ],
        "accuracy": [0, 0, 0] if accuracy == "unknown" else [accuracy.value, accuracy.low, accuracy.high],
        "chart names": [*charts],
        "heights": [chart.value for chart in charts.values()],
        "thresholds": [chart.threshold for chart in charts.values()],
        "chart effects": [[effect.value, effect.low or 0, effect.high or 0] for effect in effects],
        "moved": sorted(verdict.moved),
        "support": verdict.support.share if verdict.support else 1.0,
        "classes": [verdict.classes[str(index)] for index in range(CLASSES)],
    }
    assert_as_recorded(f"dataset-verdict-{name}", values, rtol=5e-3, atol=1e-3)
