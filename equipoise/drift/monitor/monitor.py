"""Drift monitor: merges the sums of all replicas and moves one detector per stream.

Everything that changes the state is an entry of the journal, applied in order: the state after a restart is the state
before.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.stream_verdict import chart_history, compute_stream_verdict
from equipoise.drift.diagnosis.verdict import ChartHistory, StreamVerdict, TickCounts, scalar_to_python
from equipoise.drift.monitor.entries import (
    DriftEvent,
    EventKind,
    JournalEntry,
    LedgerCounts,
    MonitorSnapshot,
    ReportEntry,
    ResetEntry,
    ResumeEntry,
    TickEntry,
)
from equipoise.drift.monitor.journal import Journal
from equipoise.drift.monitor.report_ledger import (
    REPLICA_TIMEOUT_SECONDS,
    REPLICA_TIMEOUT_TICKS,
    ReportLedger,
    SumsByStream,
    Tick,
)
from equipoise.drift.monitor.stream_key import StreamKey
from equipoise.drift.reference.profile import ReferenceProfile, ReferenceUnavailable, read_registered_arrays
from equipoise.storage.atomic import atomic_write
from equipoise.type_aliases import AnyArray

MAX_SOURCES = 32  # sources of a model with charts of their own
MAX_EVENTS = 500  # events kept, the latest
ENTRIES_PER_SNAPSHOT = 200
OTHER_SOURCES = "others"  # stream shared by the sources beyond MAX_SOURCES


@dataclass(frozen=True)
class Report:
    """Report of one replica: its ticks, and how far its clock has come."""

    replica: str
    clock: int
    """Unix time in milliseconds up to which the replica has reported everything"""
    ticks: list[Tick]
    leaves: bool = False
    """whether this is the replica's last report"""
    confirmed: int = 0
    """number of the last tick that the replica knows to be acknowledged"""


@dataclass(eq=False)
class Monitor:
    """State of all streams: detectors, reference profiles, events and the ledger of reports; survives restarts."""

    folder: Path
    """folder of the journal, the snapshots and the reference profiles"""
    run_length: float
    """requests without drift per false alarm, over all charts of a model"""
    tick_seconds: float = 1.0
    """seconds between two reports of a replica"""
    entries_per_snapshot: int = ENTRIES_PER_SNAPSHOT
    """journal entries from one snapshot to the next"""
    ledger: ReportLedger = field(default_factory=ReportLedger)
    detectors: dict[StreamKey, StreamDetector] = field(default_factory=dict)
    profiles: dict[StreamKey, ReferenceProfile | ReferenceUnavailable] = field(default_factory=dict)
    events: list[DriftEvent] = field(default_factory=list)
    unsent_alarms: list[DriftEvent] = field(default_factory=list)
    """events of alarms for which no notification has been sent"""

    def __post_init__(self) -> None:
        self.journal = Journal(self.folder)
        self.has_saved_state = False
        try:
            self._load_saved_state()
        except Exception as error:  # whatever NumPy and zipfile raise for damaged bytes
            self.journal.set_aside()
            self.ledger, self.detectors, self.profiles, self.events = ReportLedger(), {}, {}, []
            why = f"cannot read the state in {self.folder}: {error!r}; it was set aside, and monitoring starts anew"
            self._append_event("state lost", "", 0.0, why=why)
        self.ledger.timeout_seconds = max(REPLICA_TIMEOUT_SECONDS, REPLICA_TIMEOUT_TICKS * self.tick_seconds)
        self.unsent_alarms.clear()  # notifications of these were sent before the restart

    def _load_saved_state(self) -> None:
        """Load the reference profiles and the snapshot, and apply the journal."""
        for path in sorted(self.folder.glob("known-*.npz")):
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                self.profiles[StreamKey.parse(str(arrays["stream"]))] = read_registered_arrays(dict(arrays))
        if (snapshot := self.journal.load_snapshot()) is not None:
            self._restore_snapshot(snapshot)
        for entry, rows in self.journal.read_entries():
            self._apply_entry(entry, rows)
        self.has_saved_state = bool(self.ledger.replicas or self.detectors)

    def resume(self, now: float) -> None:
        """Continue after a restart: replicas were not silent meanwhile, so their timeouts start at `now`."""
        if self.has_saved_state:
            self._write_entry(ResumeEntry(now=now))

    def register(self, stream: StreamKey, arrays: Mapping[str, AnyArray]) -> None:
        """Store the reference profile of a model's version, or the reason why it has none."""
        name = hashlib.sha256(str(stream).encode()).hexdigest()[:16]
        with atomic_write(self.folder / f"known-{name}.npz") as temporary, temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, stream=np.array(str(stream)), **arrays)
        self.profiles[stream] = read_registered_arrays(arrays)

    def submit_report(self, report: Report, now: float) -> int:
        """Journal and apply a report; return the number of the last tick that need not be sent again."""
        rows = b"".join(row.tobytes() for tick in report.ticks for row in tick.rows.values())
        ticks = [
            TickEntry(tick.number, tick.clock, [(str(stream), len(row)) for stream, row in tick.rows.items()])
            for tick in report.ticks
        ]
        entry = ReportEntry(
            replica=report.replica,
            clock=report.clock,
            leaves=report.leaves,
            confirmed=report.confirmed,
            now=now,
            ticks=ticks,
        )
        taken = self._write_entry(entry, rows)
        if self.journal.entry_count >= self.entries_per_snapshot:
            self.journal.write_snapshot(self._snapshot_arrays())
        return taken

    def reset(self, stream: StreamKey, now: float) -> None:
        """Forget the charts and alarms of a stream and its sources, as asked for by an operator."""
        self._write_entry(ResetEntry(stream=str(stream), now=now))

    def _write_entry(self, entry: JournalEntry, row_bytes: bytes = b"") -> int:
        """Append an entry to the journal and apply it."""
        self.journal.append(entry, row_bytes)
        return self._apply_entry(entry, row_bytes)

    def _apply_entry(self, entry: JournalEntry, row_bytes: bytes) -> int:
        """Apply an entry of the journal; return the number of the last tick counted, 0 for other entries."""
        if isinstance(entry, ReportEntry):
            return self._apply_report(entry, row_bytes)
        if isinstance(entry, ResetEntry):
            stream = StreamKey.parse(entry.stream)
            for key in [key for key in self.detectors if stream.covers(key)]:
                del self.detectors[key]
            self._append_event("reset", stream, entry.now)
        else:
            for replica in self.ledger.replicas.values():
                replica.heard = entry.now
            self._append_event("monitor restarted", "", entry.now)
        return 0

    def _apply_report(self, entry: ReportEntry, row_bytes: bytes) -> int:
        """Count a replica's report; return the number of the last tick counted."""
        ticks, offset = [], 0
        for tick in entry.ticks:
            rows: SumsByStream = {}
            for name, length in tick.stream_lengths:
                rows[StreamKey.parse(name)] = np.frombuffer(row_bytes, np.int64, length, offset)
                offset += 8 * length
            ticks.append(Tick(tick.number, tick.clock, rows))
        died = self.ledger.died
        taken = self.ledger.add_report(entry.replica, ticks, entry.clock, entry.now, entry.leaves, entry.confirmed)
        for clock, rows in self.ledger.pop_closed_ticks(entry.now):
            self._process_tick(rows, clock / 1000)
        if self.ledger.died > died:
            self._append_event("replica lost", "", entry.now, ticks=self.ledger.died - died)
        return taken

    def _process_tick(self, rows: SumsByStream, unix_seconds: float) -> None:
        """Add the sums of one closed tick to the detectors of its streams and sources."""
        totals: SumsByStream = {}
        for key, row in sorted(rows.items(), key=lambda item: str(item[0])):
            stream = key.all_sources
            totals[stream] = totals[stream] + row if stream in totals else row
            if key.source:
                self._add_sums(self._limit_sources(key), row, unix_seconds)
        for stream in sorted(totals, key=str):
            self._add_sums(stream, totals[stream], unix_seconds)

    def _limit_sources(self, key: StreamKey) -> StreamKey:
        """Return the key of a source's detector; sources beyond the first MAX_SOURCES share one."""
        known = [other for other in self.detectors if other.source and key.all_sources.covers(other)]
        return key if key in known or len(known) < MAX_SOURCES else key._replace(source=OTHER_SOURCES)

    def _add_sums(self, key: StreamKey, sums: AnyArray, unix_seconds: float) -> None:
        """Add sums to the detector of a stream, and record an alarm or its end as an event."""
        profile = self.profiles.get(key.all_sources)
        if not isinstance(profile, ReferenceProfile) or len(sums) != profile.baseline.layout.row_length:
            return
        if key not in self.detectors:
            self.detectors[key] = StreamDetector.start(profile, self.run_length)
        detector = self.detectors[key]
        detector.run_length = self._required_run_length(key)
        previous_alarm = detector.alarm
        if detector.add_sums(sums, unix_seconds):
            self._append_event("alarm", key, unix_seconds, verdict=compute_stream_verdict(detector))
            self.unsent_alarms.append(self.events[-1])
        elif previous_alarm is not None and detector.alarm is None:
            self._append_event("over", key, unix_seconds)

    def _required_run_length(self, key: StreamKey) -> float:
        """Return the run length of each detector of a stream: with sources, two detectors see each request."""
        has_sources = any(other.source and key.all_sources.covers(other) for other in self.detectors)
        return self.run_length * (2 if has_sources else 1)

    def _append_event(
        self,
        kind: EventKind,
        stream: StreamKey | Literal[""],
        unix_seconds: float,
        *,
        why: str | None = None,
        ticks: int | None = None,
        verdict: StreamVerdict | None = None,
    ) -> None:
        """Append an event to the log, which keeps the latest MAX_EVENTS."""
        event = DriftEvent(event=kind, stream=str(stream), time=unix_seconds, why=why, ticks=ticks, verdict=verdict)
        self.events.append(event)
        del self.events[:-MAX_EVENTS]

    def compute_verdict(self, stream: StreamKey) -> StreamVerdict:
        """Return the verdict on a stream, with those on its sources."""
        profile = self.profiles.get(stream)
        if not isinstance(profile, ReferenceProfile):
            return StreamVerdict(state="unknown", why=profile.reason if profile else "no request was observed")
        verdict = compute_stream_verdict(self.detectors.get(stream) or StreamDetector.start(profile, self.run_length))
        sources = {
            key.source: msgspec.structs.replace(compute_stream_verdict(detector), charts=())
            for key, detector in self.detectors.items()
            if key.source and stream.covers(key)
        }
        counts = TickCounts(lost=self.ledger.lost, late=self.ledger.late, twice=self.ledger.twice)
        return msgspec.structs.replace(verdict, sources=sources, replicas=len(self.ledger.replicas), ticks=counts)

    def chart_history(self, stream: StreamKey) -> ChartHistory:
        """Return the height of each chart of a stream after each step."""
        profile = self.profiles.get(stream)
        detector = self.detectors.get(stream) or (
            StreamDetector.start(profile, self.run_length) if isinstance(profile, ReferenceProfile) else None
        )
        return chart_history(detector) if detector else ChartHistory()

    def _snapshot_arrays(self) -> dict[str, AnyArray]:
        """Return everything that changes, as arrays for a snapshot."""
        ledger = self.ledger
        waiting = [(clock, stream) for clock, rows in ledger.waiting.items() for stream in rows]
        snapshot = MonitorSnapshot(
            counts=LedgerCounts(**{name: getattr(ledger, name) for name in LedgerCounts.__struct_fields__}),
            replicas=ledger.replicas,
            waiting=[(clock, str(stream)) for clock, stream in waiting],
            detectors=[*map(str, self.detectors)],
            events=self.events,
        )
        contents = msgspec.to_builtins(snapshot, enc_hook=scalar_to_python)
        facts = json.dumps(contents)  # unlike msgspec, json keeps infinities
        arrays = {"facts": np.array(facts)}
        for index, (clock, stream) in enumerate(waiting):
            arrays[f"waiting.{index}"] = ledger.waiting[clock][stream]
        for index, detector in enumerate(self.detectors.values()):
            arrays |= {f"{index}.{name}": value for name, value in detector.state_arrays().items()}
        return arrays

    def _restore_snapshot(self, arrays: Mapping[str, AnyArray]) -> None:
        """Restore the state from the arrays of a snapshot."""
        snapshot = msgspec.convert(json.loads(str(arrays["facts"])), type=MonitorSnapshot)
        self.ledger = ReportLedger(replicas=snapshot.replicas, **msgspec.to_builtins(snapshot.counts))
        for index, (clock, name) in enumerate(snapshot.waiting):
            self.ledger.waiting.setdefault(clock, {})[StreamKey.parse(name)] = arrays[f"waiting.{index}"]
        self.events = snapshot.events
        for index, name in enumerate(snapshot.detectors):
            self._restore_detector(StreamKey.parse(name), f"{index}.", arrays)
        for key, detector in self.detectors.items():
            detector.run_length = self._required_run_length(key)

    def _restore_detector(self, key: StreamKey, prefix: str, arrays: Mapping[str, AnyArray]) -> None:
        """Restore the detector of a stream from those arrays whose names begin with `prefix`."""
        profile = self.profiles.get(key.all_sources)
        if not isinstance(profile, ReferenceProfile):
            why = f"cannot restore the charts of {key}: its reference profile is no longer in {self.folder}"
            self._append_event("state lost", key, 0.0, why=why)
            return
        self.detectors[key] = StreamDetector.start(profile, self.run_length)
        self.detectors[key].restore(
            {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
        )
