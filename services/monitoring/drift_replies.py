"""Replies of the drift monitor to a report of a replica."""

from dataclasses import dataclass, field
from typing import Self

from equipoise.drift.detector import StreamDetector
from equipoise.drift.monitor.stream_key import StreamKey


@dataclass(frozen=True, kw_only=True)
class StreamState:
    """State of a stream, for gauges."""

    drift: bool
    alarm_seconds: float | None = None
    """Unix time of the alarm; None without drift"""
    images: int
    threshold: float
    charts: dict[str, float]
    conditions: dict[str, float] = field(default_factory=dict)
    """share of each known condition in the latest images; empty if only one is known"""
    lost: int
    """replica reports that never reached the monitor"""

    @classmethod
    def from_detector(cls, detector: StreamDetector, lost: int) -> Self:
        """Build the state of a stream from its detector and the number of lost reports."""
        return cls(
            drift=detector.alarm is not None,
            alarm_seconds=detector.alarm.unix_seconds if detector.alarm else None,
            images=detector.answered_images,
            threshold=detector.threshold(),
            charts=detector.highest_by_name(),
            conditions=detector.recent_condition_shares(),
            lost=lost,
        )


@dataclass(frozen=True, kw_only=True)
class ReportReply:
    """What the monitor took of a report, and the states of all streams."""

    taken: int = 0
    """number of the last tick that need not be sent again"""
    unknown: list[StreamKey] = field(default_factory=list)
    """streams whose reference must be registered before the report is sent again"""
    states: dict[StreamKey, StreamState] = field(default_factory=dict)
