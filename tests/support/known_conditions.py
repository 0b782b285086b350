"""Known conditions of a small model, and verdicts that lead to them."""

from types import SimpleNamespace

from equipoise.drift.adaptation.workload import AdaptationRecipe, CorruptionAmount, DriftCondition, apply_corruptions
from equipoise.drift.diagnosis.verdict import parse_verdict
from jobs.publishing.known_conditions import (
    LearnedCondition,
    condition_arrays,
    condition_entries,
)
from tests.support.drift_data import CLASSES, render_shapes, score_shapes
from tests.support.manifests import build_manifest

DARKER = CorruptionAmount("exposure", "darker", -1.0)


WARMER = CorruptionAmount("colour temperature", "warmer", 4400.0)


NOISE = CorruptionAmount("noise", "", 12.5)


NAMES = [str(index) for index in range(CLASSES)]


def build_model(learned=(), **fields):
    """Build what learning a condition needs of a bundle."""
    model = {
        "manifest": build_manifest(classes=NAMES, conditions=condition_entries(learned), digest="1" * 64),
        "classes": NAMES,
        "shape": (3, 32, 32),
        "folder": "bundle",
        "temperature": 1.0,
        "run_engine": score_shapes,
        "load_reference_arrays": lambda: condition_arrays(learned),
    }
    return SimpleNamespace(**model | fields)


def build_verdict(**fields):
    effect = {"cause": "exposure", "detail": "darker", "value": -1.0}
    return parse_verdict({"state": "drift", "cause": "exposure", "effects": [effect], "looked_at": 500} | fields)


def build_recipe(*changes, before=()):
    return AdaptationRecipe("shapes", "photos", DriftCondition(changes), DriftCondition(before))


def build_condition(*changes, name="darker", seed=7, count=120, real_share=0.25):
    images = apply_corruptions(render_shapes(count, seed)[0], changes)
    return LearnedCondition(name, DriftCondition(changes), images, real_share)
