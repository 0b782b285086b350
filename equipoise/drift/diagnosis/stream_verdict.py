"""Verdict on one stream of requests as plain data: ok, drift or unknown, with the numbers behind it."""

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
    **dict.fromkeys(POSITION_STATISTICS, ("of half the image", 1.0)),
    "log odds": ("nats", 1.0),
    "energy": ("nats", 1.0),
    "distance": ("of at most 2", 1.0),
    "strange": ("of the images", 1.0),
}
"""unit of a charted feature's effect, and the factor that converts to it; effects of other features are ratios"""


def compute_stream_verdict(detector: StreamDetector) -> dict[str, Any]:
    """Return the verdict on a stream as plain data, as written to JSON."""
    first = find_change_step(detector) if detector.alarm else 0
    window = window_since(detector, first) if detector.observed_images else None
    cause = diagnose_alarm(detector, window)
    state = "drift" if detector.alarm else "ok" if detector.observed_images >= MIN_STREAM_IMAGES else "unknown"
    estimate = None if window is None or state == "unknown" else estimate_accuracy(window, cause)
    return {
        "state": state,
        "why": explain_state(detector, state, cause),
        "images": detector.answered_images,
        "looked_at": detector.observed_images,
        "cause": cause.name if cause else None,
        "effects": [asdict(effect) for effect in cause.effects] if cause else [],
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
    """Return how rare false alarms were at publication, counted on held-out images; None if they were not counted."""
    check = detector.profile.verified
    return asdict(check) | {"realised": check.images_per_alarm} if check else None


def diagnose_alarm(detector: StreamDetector, window: Window | None) -> Cause | None:
    """Return the cause of an alarm, or None without an alarm."""
    if detector.alarm is None or window is None:
        return None
    values, threshold = detector.values(), detector.threshold()
    return diagnose_window(window, bool((values[SCORE_CHART_COUNT : SCORE_CHART_COUNT + 2] >= threshold).any()))


def explain_state(detector: StreamDetector, state: str, cause: Cause | None) -> str:
    """Explain the verdict in one sentence."""
    if state == "unknown":
        return f"{detector.observed_images} requests were observed; at least {MIN_STREAM_IMAGES} are needed"
    if cause is None or detector.alarm is None:
        return f"{detector.observed_images} requests look like the reference"
    return f"{cause.name}: {cause.why}; the first chart over its threshold was {chart_name(detector.alarm.chart_index)}"


def describe_onset(detector: StreamDetector, first_step: int) -> dict[str, Any]:
    """Describe when the change began and when it set off the alarm, in requests and in UTC."""
    layout = detector.profile.baseline.layout
    before = int(detector.asked[first_step] - detector.rows[first_step][layout.slices["all"]][0])
    unix_seconds = float(detector.times[max(first_step - 1, 0)])
    return {
        "images": detector.answered_images - before,
        "at": datetime.fromtimestamp(unix_seconds, UTC).isoformat(timespec="seconds"),
        "alarm": {
            "images": detector.alarm.observed_images if detector.alarm else None,
            "at": datetime.fromtimestamp(detector.alarm.unix_seconds, UTC).isoformat(timespec="seconds")
            if detector.alarm
            else None,
            "chart": chart_name(detector.alarm.chart_index) if detector.alarm else None,
        },
    }


def describe_charts(detector: StreamDetector, window: Window) -> list[dict[str, Any]]:
    """Describe every chart by name, the highest first.

    A value is the logarithm of how many images without drift it takes, on average, for the chart to be as high.
    """
    values, threshold = detector.values(), detector.threshold()
    by_feature = values[:SCORE_CHART_COUNT].reshape(-1, len(CHARTED_FEATURES)).max(0)
    charts = [chart_entry(window, index, float(by_feature[index]), threshold) for index in range(len(CHARTED_FEATURES))]
    for name in dict.fromkeys(CLASS_AND_FEATURE_CHARTS):
        height = max(
            float(values[SCORE_CHART_COUNT + index])
            for index, chart in enumerate(CLASS_AND_FEATURE_CHARTS)
            if chart == name
        )
        charts.append(
            {
                "name": name,
                "value": height,
                "threshold": threshold,
                "effect": class_share_effect(detector, window, name),
            }
        )
    return sorted(charts, key=lambda chart: -chart["value"])


def chart_entry(window: Window, feature_index: int, value: float, threshold: float) -> dict[str, Any]:
    """Describe the chart of one feature, with the window's difference in the feature's own unit as its effect."""
    unit, factor = EFFECT_UNITS.get(CHARTED_FEATURES[feature_index], ("times", 1.0))
    middle, reach = (
        window.shifts[feature_index],
        Z_95 * window.scale[feature_index] / np.sqrt(window.effective_sample_size),
    )
    ends = [float(end) * factor for end in (middle, middle - reach, middle + reach)]
    if unit == "times":
        ends = [float(np.exp(end)) for end in ends]
    effect = {"unit": unit, "value": ends[0], "low": ends[1], "high": ends[2]}
    return {"name": CHARTED_FEATURES[feature_index], "value": value, "threshold": threshold, "effect": effect}


def class_share_effect(detector: StreamDetector, window: Window, name: str) -> dict[str, Any] | None:
    """Return the class behind a chart of classes and its share; None for other charts, which have no unit."""
    if not name.startswith("class"):
        return None
    index = int(detector.charts.classes[0, CLASS_AND_FEATURE_CHARTS.index(name)].argmax())
    share = float(window.counts[index] / max(window.image_count, 1))
    reach = Z_95 * np.sqrt(
        share * (1 - share) * float(detector.charts.runs.variance_factor()[0]) / max(window.image_count, 1)
    )
    effect = {"unit": "of the requests", "value": share, "low": max(share - reach, 0), "high": min(share + reach, 1)}
    return effect | {"class": index, "reference": float(detector.charts.rules.class_shares[index])}


def chart_history(detector: StreamDetector) -> dict[str, Any]:
    """Return the height of each chart after each step, with the images answered and the Unix time until then."""
    trace = detector.trace.astype(np.float64)
    heights = np.nan_to_num(trace, posinf=0, neginf=0).round(3)  # some charts are infinite in the first steps
    return {
        "images": detector.asked.tolist(),
        "times": detector.times.round(3).tolist(),
        "threshold": heights[:, -1].tolist(),
        "charts": {name: heights[:, index].tolist() for index, name in enumerate(CHART_NAMES)},
    }


def with_class_names(verdict: dict[str, Any], class_names: list[str]) -> dict[str, Any]:
    """Return a verdict with class names in place of class indices."""
    charts = [chart | {"effect": with_class_name(chart["effect"], class_names)} for chart in verdict.get("charts", [])]
    sources = {name: with_class_names(source, class_names) for name, source in verdict.get("sources", {}).items()}
    counts, usual = (dict(zip(class_names, verdict.get(part, []), strict=False)) for part in ("classes", "usual"))
    parts = {"charts": charts, "sources": sources, "classes": counts, "usual": usual}
    return {name: parts.get(name, value) for name, value in verdict.items()}


def with_class_name(effect: dict[str, Any] | None, class_names: list[str]) -> dict[str, Any] | None:
    """Return an effect with the name of its class, if it has a class, in place of the index."""
    return effect | {"class": class_names[effect["class"]]} if effect and "class" in effect else effect
