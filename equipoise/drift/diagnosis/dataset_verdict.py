"""The judgement of a set of pictures at once: each chart a test, all of them together wrong once in a hundred sets."""

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from equipoise.drift.charts.baseline import FIGURES, Seen, leaning
from equipoise.drift.diagnosis.accuracy_estimate import accuracy
from equipoise.drift.diagnosis.root_cause import Cause, cause
from equipoise.drift.diagnosis.stream_verdict import figure
from equipoise.drift.diagnosis.window import Window, window
from equipoise.drift.reference.profile import Known
from equipoise.drift.stats import label_shift as shift
from equipoise.drift.stats import two_sample_tests as samples
from equipoise.drift.stats.density_ratio import density

Array = NDArray[Any]

FEWEST = 30  # pictures about which anything is said
ALPHA = 0.01  # of sets without drift that are called drifted
TESTS = 4  # families of charts that share it
PERMUTATIONS = 2000
SHOWN = 12  # pictures that show what changed
MOST_WEIGHED = 1000  # pictures of the reference


def judged(known: Known, seen: Seen, features: Array, reference: Array, called: NDArray[np.int64]) -> dict[str, Any]:
    """A verdict on pictures, their features beside those of the reference and what that was called."""
    if len(seen) < FEWEST:
        few = f"{len(seen)} pictures were given: {FEWEST} are needed"
        return said("unknown", few, len(seen), None, [], None)
    found = window(known, known.baseline.sums(seen))
    charts = [*figures(found), shape(known, seen), classes(known, found)]
    charts.append(by_features(seen, features, reference, called, len(found.counts)))
    high = {one["name"] for one in charts if one["value"] >= one["threshold"]}
    why = cause(found, "classes" in high) if high else None
    if why and why.name == "label shift" and not explained(seen, features, reference, called):
        why = Cause("features", "classes come in other shares, and that does not explain how features differ")
    estimate = accuracy(found, why)
    sentence = f"{why.name}: {why.why}" if why else f"{len(seen)} pictures look like the reference"
    charts.sort(key=lambda one: one["threshold"] - one["value"])
    counts = found.counts.astype(int).tolist()
    usual = known.baseline.usual.counts.astype(int).tolist()
    more = {"classes": counts, "usual": usual, "support": support(reference, features) if high else None}
    more["moved"] = moved(known, seen, found) if high else []
    return said("drift" if high else "ok", sentence, len(seen), why, charts, estimate) | more


def moved(known: Known, seen: Seen, found: Window) -> list[int]:
    """Places of the pictures that lie farthest in the direction in which all of them have moved, the farthest first."""
    along = known.baseline.usual.scores(seen) @ found.scores
    places: list[int] = np.argsort(-along, kind="stable")[:SHOWN].tolist()
    return places


def support(reference: Array, features: Array) -> dict[str, Any]:
    """Which share of the reference is worth anything for such pictures: of little, no weighting makes enough."""
    some = reference[np.linspace(0, len(reference) - 1, min(len(reference), MOST_WEIGHED)).astype(int)]
    found = density(some, features)
    return {"share": found.effective / len(some), "moved": found.moved}


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
    threshold = float(-np.log10(ALPHA / TESTS / len(FIGURES)))
    return [figure(found, place, float(max(surprise[place], 0)), threshold) for place in range(len(FIGURES))]


def shape(known: Known, seen: Seen) -> dict[str, Any]:
    """The distribution of each figure, whose mean may well be as it was: the one that differs most."""
    tried = [place for place, name in enumerate(FIGURES) if name != "strange"]  # a yes or no: its score tells the class
    scores = known.baseline.usual.scores(seen)[:, tried].astype(np.float32)
    test = samples.kolmogorov(known.baseline.ranked[tried].T, scores)
    place = int(test.p.argmin())
    unit = f"the largest gap between distributions, of {FIGURES[tried[place]]}"
    effect = {"unit": unit, "value": float(test.statistic[place]), "low": None, "high": None}
    threshold = float(-np.log10(ALPHA / TESTS / len(tried)))
    return {"name": "shape", "value": surprise_of(float(test.p[place])), "threshold": threshold, "effect": effect}


def explained(seen: Seen, features: Array, reference: Array, called: NDArray[np.int64]) -> bool:
    """Whether features are as those of a reference with the same shares of classes."""
    count = int(max(seen.classes.max(), called.max())) + 1
    now, before = (np.bincount(one, minlength=count) / len(one) for one in (seen.classes, called))
    test = shift.explained(reference, called, now / np.maximum(before, 1e-9), features, PERMUTATIONS)
    return test.p >= ALPHA


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
    return {
        "name": "classes",
        "value": surprise_of(test.p),
        "threshold": float(-np.log10(ALPHA / TESTS)),
        "effect": effect,
    }


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
        "threshold": float(-np.log10(ALPHA / TESTS)),
        "effect": effect,
    }


def surprise_of(p: float) -> float:
    """The decimal logarithm of one in so many."""
    return float(-np.log10(max(p, 1e-300)))
