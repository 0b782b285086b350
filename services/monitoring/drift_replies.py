"""Replies of the drift monitor to a report of a replica."""

from dataclasses import dataclass, field

from equipoise.drift.monitor.stream_key import StreamKey


@dataclass(frozen=True, kw_only=True)
class StreamState:
    """State of a stream, for gauges."""

    drift: bool
    images: int
    threshold: float
    charts: dict[str, float]
    lost: int
    """replica reports that never reached the monitor"""


@dataclass(frozen=True, kw_only=True)
class ReportReply:
    """What the monitor took of a report, and the states of all streams."""

    taken: int = 0
    """number of the last tick that need not be sent again"""
    unknown: list[StreamKey] = field(default_factory=list)
    """streams whose reference must be registered before the report is sent again"""
    states: dict[StreamKey, StreamState] = field(default_factory=dict)
