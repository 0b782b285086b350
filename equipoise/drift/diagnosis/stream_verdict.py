"""What a watch says, in plain data: ok, drift or unknown, with the numbers it rests on."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np

from equipoise.drift.charts.baseline import CHARTED_FEATURES
from equipoise.drift.charts.cusum import MIN_STREAM_IMAGES
from equipoise.drift.detector import (
    CHART_NAMES,
    CLASS_AND_FEATURE_CHARTS,
    SCORE_CHART_COUNT,
    StreamDetector,
    chart_name,
)
from equipoise.drift.diagnosis.accuracy_estimate import AccuracyEstimate, estimate_accuracy
from equipoise.drift.diagnosis.effects import Z_95
from equipoise.drift.diagnosis.root_cause import Cause, diagnose_window
from equipoise.drift.diagnosis.window import Window, find_change_step, window_since

LOG_LIGHT_STATISTICS = ("red over blue", "green", "luminance")
POSITION_STATISTICS = ("height", "side")
EFFECT_UNITS = {
    **dict.fromkeys(LOG_LIGHT_STATISTICS, ("stops", 1 / np.log(2))),
    **{name: ("stops", 1 / np.log(2)) for name in CHARTED_FEATURES if name.startswith("cell")},
    **dict.fromkeys(POSITION_STATISTICS, ("of half the picture", 1.0)),
    "log odds": ("nats", 1.0),
    "energy": ("nats", 1.0),
    "distance": ("of 2, the farthest", 1.0),
    "strange": ("of the pictures", 1.0),
}
"""of effects: a name, and what a difference is multiplied by; those of no other are factors"""


def compute_stream_verdict(detector: StreamDetector) -> dict[str, Any]:
    """The whole of it."""
    first = find_change_step(detector) if detector.alarm else 0
    window = window_since(detector, first) if detector.observed_images else None
    found = diagnose_alarm(detector, window)
    state = "drift" if detector.alarm else "ok" if detector.observed_images >= MIN_STREAM_IMAGES else "unknown"
    estimate = None if window is None or state == "unknown" else estimate_accuracy(window, found)
    return {
        "state": state,
        "why": explain_state(detector, state, found),
        "images": detector.answered_images,
        "looked_at": detector.observed_images,
        "cause": found.name if found else None,
        "effects": [asdict(one) for one in found.effects] if found else [],
        "since": describe_onset(detector, first) if detector.alarm else None,
        "accuracy": asdict(estimate) if isinstance(estimate, AccuracyEstimate) else "unknown",
        "run_length": detector.run_length,
        "verified": describe_false_alarm_check(detector),
        "runs": round(float(detector.charts.runs.mean_run_length()[0]), 2),
        "evidence": {"value": detector.evidence.log_mean_wealth(), "threshold": float(np.log(20))},
        "classes": window.counts.astype(int).tolist() if window else [],
        "usual": detector.profile.baseline.usual.counts.astype(int).tolist(),
        "charts": describe_charts(detector, window) if window else [],
    }


def describe_false_alarm_check(detector: StreamDetector) -> dict[str, Any] | None:
    """How rare false alarms were when the bundle was published, on pictures kept apart."""
    found = detector.profile.verified
    return asdict(found) | {"realised": found.images_per_alarm} if found else None


def diagnose_alarm(detector: StreamDetector, window: Window | None) -> Cause | None:
    """Of an alarm."""
    if detector.alarm is None or window is None:
        return None
    values, threshold = detector.values(), detector.threshold()
    return diagnose_window(window, bool((values[SCORE_CHART_COUNT : SCORE_CHART_COUNT + 2] >= threshold).any()))


def explain_state(detector: StreamDetector, state: str, cause: Cause | None) -> str:
    """The verdict in words."""
    if state == "unknown":
        return f"{detector.observed_images} requests were seen: {MIN_STREAM_IMAGES} are needed"
    if cause is None or detector.alarm is None:
        return f"{detector.observed_images} requests look like the reference"
    return f"{cause.name}: {cause.why}; the first chart to say so was {chart_name(detector.alarm.chart_index)}"


def describe_onset(detector: StreamDetector, first_step: int) -> dict[str, Any]:
    """Since when, in requests and by the clock."""
    layout = detector.profile.baseline.layout
    before = int(detector.asked[first_step] - detector.rows[first_step][layout.slices["all"]][0])
    at = float(detector.times[max(first_step - 1, 0)])
    return {
        "images": detector.answered_images - before,
        "at": datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds"),
        "alarm": {
            "images": detector.alarm.observed_images if detector.alarm else None,
            "at": datetime.fromtimestamp(detector.alarm.unix_seconds, UTC).isoformat(timespec="seconds")
            if detector.alarm
            else None,
            "chart": chart_name(detector.alarm.chart_index) if detector.alarm else None,
        },
    }


def describe_charts(detector: StreamDetector, window: Window) -> list[dict[str, Any]]:
    """Every chart by name, the highest first; values are logarithms of how rare such a height is without drift."""
    values, threshold = detector.values(), detector.threshold()
    by_figure = values[:SCORE_CHART_COUNT].reshape(-1, len(CHARTED_FEATURES)).max(0)
    found = [chart_entry(window, place, float(by_figure[place]), threshold) for place in range(len(CHARTED_FEATURES))]
    for name in dict.fromkeys(CLASS_AND_FEATURE_CHARTS):
        height = float(
            max(values[SCORE_CHART_COUNT + place] for place, one in enumerate(CLASS_AND_FEATURE_CHARTS) if one == name)
        )
        found.append(
            {
                "name": name,
                "value": height,
                "threshold": threshold,
                "effect": class_share_effect(detector, window, name),
            }
        )
    return sorted(found, key=lambda one: -one["value"])


def chart_entry(window: Window, feature_index: int, value: float, threshold: float) -> dict[str, Any]:
    """One figure's chart, and by how much the window differs in the figure's own unit."""
    unit, by = EFFECT_UNITS.get(CHARTED_FEATURES[feature_index], ("times", 1.0))
    middle, reach = (
        window.shifts[feature_index],
        Z_95 * window.scale[feature_index] / np.sqrt(window.effective_sample_size),
    )
    ends = [float(end) * by for end in (middle, middle - reach, middle + reach)]
    if unit == "times":
        ends = [float(np.exp(end)) for end in ends]
    effect = {"unit": unit, "value": ends[0], "low": ends[1], "high": ends[2]}
    return {"name": CHARTED_FEATURES[feature_index], "value": value, "threshold": threshold, "effect": effect}


def class_share_effect(detector: StreamDetector, window: Window, name: str) -> dict[str, Any] | None:
    """The class that a chart of classes means, and its share; features have no unit of their own."""
    if not name.startswith("class"):
        return None
    place = int(detector.charts.classes[0, CLASS_AND_FEATURE_CHARTS.index(name)].argmax())
    share = float(window.counts[place] / max(window.image_count, 1))
    reach = Z_95 * np.sqrt(
        share * (1 - share) * float(detector.charts.runs.variance_factor()[0]) / max(window.image_count, 1)
    )
    effect = {"unit": "of the requests", "value": share, "low": max(share - reach, 0), "high": min(share + reach, 1)}
    return effect | {"class": place, "reference": float(detector.charts.rules.class_shares[place])}


def chart_history(detector: StreamDetector) -> dict[str, Any]:
    """How high each chart was, step by step, over the pictures that were answered until then."""
    heights = np.nan_to_num(detector.trace.astype(np.float64), posinf=0, neginf=0).round(
        3
    )  # at first some tell nothing
    return {
        "images": detector.asked.tolist(),
        "times": detector.times.round(3).tolist(),
        "threshold": heights[:, -1].tolist(),
        "charts": {name: heights[:, place].tolist() for place, name in enumerate(CHART_NAMES)},
    }


def with_class_names(verdict: dict[str, Any], class_names: list[str]) -> dict[str, Any]:
    """The same with classes by name."""
    charts = [one | {"effect": with_class_name(one["effect"], class_names)} for one in verdict.get("charts", [])]
    sources = {name: with_class_names(one, class_names) for name, one in verdict.get("sources", {}).items()}
    counts, usual = (dict(zip(class_names, verdict.get(part, []), strict=False)) for part in ("classes", "usual"))
    parts = {"charts": charts, "sources": sources, "classes": counts, "usual": usual}
    return {name: parts.get(name, value) for name, value in verdict.items()}


def with_class_name(effect: dict[str, Any] | None, class_names: list[str]) -> dict[str, Any] | None:
    """An effect on a class."""
    return effect | {"class": class_names[effect["class"]]} if effect and "class" in effect else effect
