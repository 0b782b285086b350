"""What the drift monitor writes down: entries of its journal, events, and the facts of a snapshot."""

from typing import Literal, Self

import msgspec

from equipoise.drift.diagnosis.verdict import StreamVerdict
from equipoise.drift.monitor.report_ledger import Replica
from equipoise.type_aliases import JsonObject


class TickEntry(msgspec.Struct, frozen=True, array_like=True):
    """Tick in a report: its number, the end of it in Unix milliseconds, and the length of each stream's sums."""

    number: int
    clock: int
    stream_lengths: list[tuple[str, int]]


class ReportEntry(msgspec.Struct, frozen=True, kw_only=True, tag="report"):
    """Report of a replica, received at Unix time `now`; the sums of its ticks follow as bytes."""

    replica: str
    clock: int
    leaves: bool
    confirmed: int
    now: float
    ticks: list[TickEntry]


class ResetEntry(msgspec.Struct, frozen=True, kw_only=True, tag="reset"):
    """Request to forget the charts of a stream."""

    stream: str
    now: float


class ResumeEntry(msgspec.Struct, frozen=True, kw_only=True, tag="resume"):
    """Restart of the monitor."""

    now: float


JournalEntry = ReportEntry | ResetEntry | ResumeEntry
EventKind = Literal["alarm", "over", "reset", "monitor restarted", "replica lost", "state lost"]


class DriftEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Event of a stream, or of the monitor itself if it names none."""

    event: EventKind
    stream: str
    time: float
    """Unix time in seconds"""
    why: str | None = None
    ticks: int | None = None
    """number of reports that were lost with a replica"""
    verdict: StreamVerdict | None = None
    """verdict at an alarm"""

    def to_json(self) -> JsonObject:
        """Return the event as JSON values, with the verdict's keys among its own."""
        facts: JsonObject = {"event": self.event, "stream": self.stream, "time": self.time}
        facts |= {name: value for name, value in (("why", self.why), ("ticks", self.ticks)) if value is not None}
        return facts | (self.verdict.to_json() if self.verdict else {})

    @classmethod
    def from_json(cls, contents: JsonObject) -> Self:
        """Build an event from its JSON."""
        if contents.get("event") != "alarm":
            return msgspec.convert(contents, type=cls)
        facts = {name: contents[name] for name in ("event", "stream", "time")}
        return msgspec.structs.replace(msgspec.convert(facts, type=cls), verdict=StreamVerdict.from_json(contents))

    @property
    def reason(self) -> str:
        """Cause of an alarm, or else the reason of the event; empty if there is none."""
        return (self.verdict.cause if self.verdict else self.why) or ""


class LedgerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of the report ledger."""

    closed: int
    late: int
    twice: int
    lost: int
    died: int
    gone: dict[str, int]
    dead: list[str]


class MonitorSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that changes in the monitor but arrays."""

    counts: LedgerCounts
    replicas: dict[str, Replica]
    waiting: list[tuple[int, str]]
    """clock and stream of the sums that wait, whose arrays are numbered in this order"""
    detectors: list[str]
    """streams of the detectors, whose arrays are numbered in this order"""
    events: list[DriftEvent]
