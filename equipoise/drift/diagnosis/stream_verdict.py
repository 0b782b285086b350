"""What a watch says, in plain data: ok, drift or unknown, with the numbers it rests on."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np

from equipoise.drift.charts.baseline import FIGURES
from equipoise.drift.charts.cusum import FEWEST
from equipoise.drift.detector import NAMES, OTHERS, SCORES, Watch, chart_name
from equipoise.drift.diagnosis.accuracy_estimate import Estimate, accuracy
from equipoise.drift.diagnosis.effects import SURE
from equipoise.drift.diagnosis.root_cause import Cause, cause
from equipoise.drift.diagnosis.window import Window, latest, since

LOG2 = ("red over blue", "green", "luminance")
SHARES = ("height", "side")
UNITS = {
    **dict.fromkeys(LOG2, ("stops", 1 / np.log(2))),
    **{name: ("stops", 1 / np.log(2)) for name in FIGURES if name.startswith("cell")},
    **dict.fromkeys(SHARES, ("of half the picture", 1.0)),
    "log odds": ("nats", 1.0),
    "energy": ("nats", 1.0),
    "distance": ("of 2, the farthest", 1.0),
    "strange": ("of the pictures", 1.0),
}
"""of effects: a name, and what a difference is multiplied by; those of no other are factors"""


def verdict(watch: Watch) -> dict[str, Any]:
    """The whole of it."""
    first = since(watch) if watch.alarm else 0
    window = latest(watch, first) if watch.pictures else None
    found = caused(watch, window)
    state = "drift" if watch.alarm else "ok" if watch.pictures >= FEWEST else "unknown"
    estimate = None if window is None or state == "unknown" else accuracy(window, found)
    return {
        "state": state,
        "why": sentence(watch, state, found),
        "images": watch.images,
        "looked_at": watch.pictures,
        "cause": found.name if found else None,
        "effects": [asdict(one) for one in found.effects] if found else [],
        "since": begun(watch, first) if watch.alarm else None,
        "accuracy": asdict(estimate) if isinstance(estimate, Estimate) else "unknown",
        "run_length": watch.run_length,
        "verified": verified(watch),
        "runs": round(float(watch.charts.runs.length()[0]), 2),
        "evidence": {"value": watch.evidence.value(), "threshold": float(np.log(20))},
        "classes": window.counts.astype(int).tolist() if window else [],
        "usual": watch.known.baseline.usual.counts.astype(int).tolist(),
        "charts": charts(watch, window) if window else [],
    }


def verified(watch: Watch) -> dict[str, Any] | None:
    """How rare false alarms were when the bundle was published, on pictures kept apart."""
    found = watch.known.verified
    return asdict(found) | {"realised": found.realised} if found else None


def caused(watch: Watch, window: Window | None) -> Cause | None:
    """Of an alarm."""
    if watch.alarm is None or window is None:
        return None
    values, threshold = watch.values(), watch.threshold()
    return cause(window, bool((values[SCORES : SCORES + 2] >= threshold).any()))


def sentence(watch: Watch, state: str, found: Cause | None) -> str:
    """The verdict in words."""
    if state == "unknown":
        return f"{watch.pictures} requests were seen: {FEWEST} are needed"
    if found is None or watch.alarm is None:
        return f"{watch.pictures} requests look like the reference"
    return f"{found.name}: {found.why}; the first chart to say so was {chart_name(watch.alarm.chart)}"


def begun(watch: Watch, first: int) -> dict[str, Any]:
    """Since when, in requests and by the clock."""
    layout = watch.known.baseline.layout
    before = int(watch.asked[first] - watch.rows[first][layout.parts["all"]][0])
    at = float(watch.times[max(first - 1, 0)])
    return {
        "images": watch.images - before,
        "at": datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds"),
        "alarm": {
            "images": watch.alarm.pictures if watch.alarm else None,
            "at": datetime.fromtimestamp(watch.alarm.at, UTC).isoformat(timespec="seconds") if watch.alarm else None,
            "chart": chart_name(watch.alarm.chart) if watch.alarm else None,
        },
    }


def charts(watch: Watch, window: Window) -> list[dict[str, Any]]:
    """Every chart by name, the highest first; values are logarithms of how rare such a height is without drift."""
    values, threshold = watch.values(), watch.threshold()
    by_figure = values[:SCORES].reshape(-1, len(FIGURES)).max(0)
    found = [figure(window, place, float(by_figure[place]), threshold) for place in range(len(FIGURES))]
    for name in dict.fromkeys(OTHERS):
        height = float(max(values[SCORES + place] for place, one in enumerate(OTHERS) if one == name))
        found.append({"name": name, "value": height, "threshold": threshold, "effect": classes(watch, window, name)})
    return sorted(found, key=lambda one: -one["value"])


def figure(window: Window, place: int, value: float, threshold: float) -> dict[str, Any]:
    """One figure's chart, and by how much the window differs in the figure's own unit."""
    unit, by = UNITS.get(FIGURES[place], ("times", 1.0))
    middle, reach = window.shifts[place], SURE * window.scale[place] / np.sqrt(window.worth)
    ends = [float(end) * by for end in (middle, middle - reach, middle + reach)]
    if unit == "times":
        ends = [float(np.exp(end)) for end in ends]
    effect = {"unit": unit, "value": ends[0], "low": ends[1], "high": ends[2]}
    return {"name": FIGURES[place], "value": value, "threshold": threshold, "effect": effect}


def classes(watch: Watch, window: Window, name: str) -> dict[str, Any] | None:
    """The class that a chart of classes means, and its share; features have no unit of their own."""
    if not name.startswith("class"):
        return None
    place = int(watch.charts.classes[0, OTHERS.index(name)].argmax())
    share = float(window.counts[place] / max(window.pictures, 1))
    reach = SURE * np.sqrt(share * (1 - share) * float(watch.charts.runs.widening()[0]) / max(window.pictures, 1))
    effect = {"unit": "of the requests", "value": share, "low": max(share - reach, 0), "high": min(share + reach, 1)}
    return effect | {"class": place, "reference": float(watch.charts.rules.shares[place])}


def traced(watch: Watch) -> dict[str, Any]:
    """How high each chart was, step by step, over the pictures that were answered until then."""
    heights = np.nan_to_num(watch.trace.astype(np.float64), posinf=0, neginf=0).round(3)  # at first some tell nothing
    return {
        "images": watch.asked.tolist(),
        "times": watch.times.round(3).tolist(),
        "threshold": heights[:, -1].tolist(),
        "charts": {name: heights[:, place].tolist() for place, name in enumerate(NAMES)},
    }


def named(found: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """The same with classes by name."""
    charts = [one | {"effect": by_name(one["effect"], names)} for one in found.get("charts", [])]
    sources = {name: named(one, names) for name, one in found.get("sources", {}).items()}
    counts, usual = (dict(zip(names, found.get(part, []), strict=False)) for part in ("classes", "usual"))
    parts = {"charts": charts, "sources": sources, "classes": counts, "usual": usual}
    return {name: parts.get(name, value) for name, value in found.items()}


def by_name(effect: dict[str, Any] | None, names: list[str]) -> dict[str, Any] | None:
    """An effect on a class."""
    return effect | {"class": names[effect["class"]]} if effect and "class" in effect else effect
