"""Verdicts of a deployment over time, as spans between its drift events."""

from collections.abc import Sequence
from dataclasses import dataclass

from equipoise.drift.monitor.entries import DriftEvent

MIN_SPAN_SECONDS = 1.0  # a picture of shorter ones would have no width


@dataclass(frozen=True, kw_only=True)
class VerdictSpan:
    """Time during which a verdict stood."""

    state: str
    """ok, drift or unknown"""
    start: float
    """seconds since 1970"""
    end: float
    cause: str = ""
    """cause of a drift"""


def list_verdict_spans(events: Sequence[DriftEvent], state: str, begin: float, now: float) -> list[VerdictSpan]:
    """Return the spans from `begin` to now; `state` is the verdict of now, which also stood before the first alarm.

    Between an alarm and its end, or a restart of the charts by a person, there was a drift. What came before the first
    event is ok if there was an alarm later: the monitor had seen enough requests by then.
    """
    spans: list[VerdictSpan] = []
    start, current, cause = begin, "ok" if events or state != "unknown" else "unknown", ""
    for event in sorted(events, key=lambda entry: entry.time):
        if event.event not in ("alarm", "over", "reset") or event.time < begin:
            continue
        spans.append(VerdictSpan(state=current, start=start, end=event.time, cause=cause))
        start, current = event.time, "drift" if event.event == "alarm" else "ok"
        cause = event.reason if event.event == "alarm" else ""
    spans.append(
        VerdictSpan(state=state if state != "ok" or current == "ok" else current, start=start, end=now, cause=cause)
    )
    return [span for span in spans if span.end - span.start >= MIN_SPAN_SECONDS]
