"""The judgement of a set of pictures at once: each chart a test, all of them together wrong once in a hundred sets."""

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from equipoise.drift import samples
from equipoise.drift.accuracy import accuracy
from equipoise.drift.baseline import FIGURES, Seen, leaning
from equipoise.drift.judgement import Cause, cause
from equipoise.drift.known import Known
from equipoise.drift.verdict import figure
from equipoise.drift.window import Window, window

Array = NDArray[Any]

FEWEST = 30  # pictures about which anything is said
ALPHA = 0.01  # of sets without drift that are called drifted
PERMUTATIONS = 2000


def judged(known: Known, seen: Seen, features: Array, reference: Array, called: NDArray[np.int64]) -> dict[str, Any]:
    """A verdict on pictures, their features beside those of the reference and what that was called."""
    if len(seen) < FEWEST:
        few = f"{len(seen)} pictures were given: {FEWEST} are needed"
        return said("unknown", few, len(seen), None, [], None)
    found = window(known, known.baseline.sums(seen))
    charts = [*figures(found), classes(known, found), by_features(seen, features, reference, called, len(found.counts))]
    high = {one["name"] for one in charts if one["value"] >= one["threshold"]}
    why = cause(found, "classes" in high) if high else None
    estimate = accuracy(found, why)
    sentence = f"{why.name}: {why.why}" if why else f"{len(seen)} pictures look like the reference"
    charts.sort(key=lambda one: one["threshold"] - one["value"])
    return said("drift" if high else "ok", sentence, len(seen), why, charts, estimate)


def said(state: str, why: str, images: int, found: Cause | None, charts: list[Any], estimate: Any) -> dict[str, Any]:
    """A verdict as plain data."""
    return {
        "state": state,
        "why": why,
        "images": images,
        "cause": found.name if found else None,
        "effects": [asdict(one) for one in found.effects] if found else [],
        "charts": charts,
        "accuracy": asdict(estimate) if estimate else "unknown",
    }


def figures(found: Window) -> list[dict[str, Any]]:
    """Each figure's mean against what is usual for the classes that were seen."""
    z = found.scores * np.sqrt(found.worth)
    surprise = -(np.log(2) + norm.logsf(np.abs(z))) / np.log(10)
    threshold = float(-np.log10(ALPHA / 3 / len(FIGURES)))
    return [figure(found, place, float(max(surprise[place], 0)), threshold) for place in range(len(FIGURES))]


def classes(known: Known, found: Window) -> dict[str, Any]:
    """The shares of predicted classes."""
    counts = known.baseline.usual.counts.astype(np.int64)
    test = samples.shares(counts, found.counts.astype(np.int64))
    shares = known.baseline.usual.counts / known.baseline.usual.counts.sum()
    now = found.counts / found.pictures
    place = int(np.abs(now - shares).argmax())
    reach = 1.96 * float(np.sqrt(max(now[place] * (1 - now[place]), 1 / found.pictures) / found.pictures))
    effect = {
        "unit": "of the pictures",
        "value": float(now[place]),
        "low": max(float(now[place]) - reach, 0.0),
        "high": min(float(now[place]) + reach, 1.0),
        "class": place,
        "reference": float(shares[place]),
    }
    return {"name": "classes", "value": surprise_of(test.p), "threshold": float(-np.log10(ALPHA / 3)), "effect": effect}


def by_features(seen: Seen, features: Array, reference: Array, called: NDArray[np.int64], count: int) -> dict[str, Any]:
    """What is left of the features without the mean of their class, by their discrepancy."""
    member = np.zeros((count, len(called)))
    member[called, np.arange(len(called))] = 1
    mean = leaning(member, reference.astype(np.float64))
    test = samples.discrepancy(reference - mean[called], features - mean[seen.classes], PERMUTATIONS)
    effect = {"unit": "squared discrepancy", "value": float(test.statistic), "low": None, "high": None}
    return {
        "name": "features",
        "value": surprise_of(test.p),
        "threshold": float(-np.log10(ALPHA / 3)),
        "effect": effect,
    }


def surprise_of(p: float) -> float:
    """The decimal logarithm of one in so many."""
    return float(-np.log10(max(p, 1e-300)))
