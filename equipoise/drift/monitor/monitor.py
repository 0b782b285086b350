"""Drift monitor: merges the sums of all replicas and moves one detector per stream.

A stream is named model/version, and model/version/source where requests name a source. Everything that changes the
state is an entry of the journal, applied in order: the state after a restart is the state before.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.stream_verdict import chart_history, compute_stream_verdict
from equipoise.drift.monitor.journal import Journal
from equipoise.drift.monitor.report_ledger import (
    REPLICA_TIMEOUT_SECONDS,
    REPLICA_TIMEOUT_TICKS,
    Replica,
    ReportLedger,
    SumsByStream,
    Tick,
)
from equipoise.drift.reference.profile import ReferenceProfile, profile_from_arrays
from equipoise.errors import EquipoiseError
from equipoise.storage.atomic import atomic_write

MAX_SOURCES = 32  # sources of a model with charts of their own
MAX_EVENTS = 500  # events kept, the latest
ENTRIES_PER_SNAPSHOT = 200  # journal entries from one snapshot to the next
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
    ledger: ReportLedger = field(default_factory=ReportLedger)
    detectors: dict[str, StreamDetector] = field(default_factory=dict)
    profiles: dict[str, ReferenceProfile | str] = field(default_factory=dict)
    """reference profile by model/version, or one sentence on why there is none"""
    events: list[dict[str, Any]] = field(default_factory=list)
    unsent_alarms: list[dict[str, Any]] = field(default_factory=list)
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
            self._append_event("state lost", "", 0.0, {"why": why})
        self.ledger.timeout_seconds = max(REPLICA_TIMEOUT_SECONDS, REPLICA_TIMEOUT_TICKS * self.tick_seconds)
        self.unsent_alarms.clear()  # notifications of these were sent before the restart

    def _load_saved_state(self) -> None:
        """Load the reference profiles and the snapshot, and apply the journal."""
        for path in sorted(self.folder.glob("known-*.npz")):
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                self._load_profile(str(arrays["stream"]), dict(arrays))
        if (snapshot := self.journal.load_snapshot()) is not None:
            self._restore_snapshot(snapshot)
        for facts, rows in self.journal.read_entries():
            self._apply_entry(facts, rows)
        self.has_saved_state = bool(self.ledger.replicas or self.detectors)

    def resume(self, now: float) -> None:
        """Continue after a restart: replicas were not silent meanwhile, so their timeouts start at `now`."""
        if self.has_saved_state:
            self.journal.append({"resume": True, "now": now}, b"")
            self._apply_entry({"resume": True, "now": now}, b"")

    def register(self, stream: str, arrays: Mapping[str, Any]) -> None:
        """Store the reference profile of a bundle, or the reason why it has none."""
        name = hashlib.sha256(stream.encode()).hexdigest()[:16]
        with atomic_write(self.folder / f"known-{name}.npz") as temporary, temporary.open("wb") as file:
            np.savez(file, stream=np.array(stream), **arrays)
        self._load_profile(stream, arrays)

    def _load_profile(self, stream: str, arrays: Mapping[str, Any]) -> None:
        """Load a reference profile, or keep the sentence on why it cannot be used."""
        try:
            self.profiles[stream] = profile_from_arrays(arrays, int(arrays["classes"]), int(arrays["width"]))
        except EquipoiseError as error:
            self.profiles[stream] = str(error)

    def submit_report(self, report: Report, now: float) -> int:
        """Journal and apply a report; return the number of the last tick that need not be sent again."""
        rows = b"".join(row.tobytes() for tick in report.ticks for row in tick.rows.values())
        facts = {
            "replica": report.replica,
            "clock": report.clock,
            "leaves": report.leaves,
            "confirmed": report.confirmed,
            "now": now,
            "ticks": [
                [tick.number, tick.clock, [[name, len(row)] for name, row in tick.rows.items()]]
                for tick in report.ticks
            ],
        }
        self.journal.append(facts, rows)
        taken = self._apply_entry(facts, rows)
        if self.journal.entry_count >= ENTRIES_PER_SNAPSHOT:
            self.journal.write_snapshot(self._snapshot_arrays())
        return taken

    def reset(self, stream: str, now: float) -> None:
        """Forget the charts and alarms of a stream and its sources, as asked for by an operator."""
        self.journal.append({"reset": stream, "now": now}, b"")
        self._apply_entry({"reset": stream, "now": now}, b"")

    def _apply_entry(self, entry: dict[str, Any], row_bytes: bytes) -> int:
        """Apply an entry of the journal; return the number of the last tick counted, 0 for other entries."""
        if "reset" in entry:
            for name in [name for name in self.detectors if is_same_stream_or_source(name, entry["reset"])]:
                del self.detectors[name]
            self._append_event("reset", entry["reset"], entry["now"], {})
            return 0
        if "resume" in entry:
            for replica in self.ledger.replicas.values():
                replica.heard = entry["now"]
            self._append_event("monitor restarted", "", entry["now"], {})
            return 0
        ticks, offset = [], 0
        for number, clock, streams in entry["ticks"]:
            rows: SumsByStream = {}
            for name, length in streams:
                rows[name] = np.frombuffer(row_bytes, np.int64, length, offset)
                offset += 8 * length
            ticks.append(Tick(number, clock, rows))
        died = self.ledger.died
        arguments = {name: entry[name] for name in ("clock", "now", "leaves", "confirmed") if name in entry}
        taken = self.ledger.add_report(entry["replica"], ticks, **arguments)
        for clock, rows in self.ledger.pop_closed_ticks(entry["now"]):
            self._process_tick(rows, clock / 1000)
        if self.ledger.died > died:
            self._append_event("replica lost", "", entry["now"], {"ticks": self.ledger.died - died})
        return taken

    def _process_tick(self, rows: SumsByStream, unix_seconds: float) -> None:
        """Add the sums of one closed tick to the detectors of its streams and sources."""
        totals: SumsByStream = {}
        for name, row in sorted(rows.items()):
            stream, _, source = name.partition("\n")
            totals[stream] = totals[stream] + row if stream in totals else row
            if source:
                self._add_sums(self._source_stream(stream, source), row, unix_seconds)
        for stream in sorted(totals):
            self._add_sums(stream, totals[stream], unix_seconds)

    def _source_stream(self, stream: str, source: str) -> str:
        """Return the stream name of a source; sources beyond the first MAX_SOURCES share one."""
        known = [name for name in self.detectors if is_same_stream_or_source(name, stream) and name != stream]
        name = f"{stream}/{source}"
        return name if name in known or len(known) < MAX_SOURCES else f"{stream}/{OTHER_SOURCES}"

    def _add_sums(self, name: str, sums: Any, unix_seconds: float) -> None:
        """Add sums to the detector of a stream, and record an alarm or its end as an event."""
        stream = "/".join(name.split("/", 2)[:2])
        profile = self.profiles.get(stream)
        if not isinstance(profile, ReferenceProfile) or len(sums) != profile.baseline.layout.row_length:
            return
        if name not in self.detectors:
            self.detectors[name] = StreamDetector.start(profile, self.run_length)
        detector = self.detectors[name]
        detector.run_length = self._required_run_length(stream)
        previous_alarm = detector.alarm
        if detector.add_sums(sums, unix_seconds):
            self._append_event("alarm", name, unix_seconds, compute_stream_verdict(detector))
            self.unsent_alarms.append(self.events[-1])
        elif previous_alarm is not None and detector.alarm is None:
            self._append_event("over", name, unix_seconds, {})

    def _required_run_length(self, stream: str) -> float:
        """Return the run length of each detector of a stream: with sources, two detectors see each request."""
        has_sources = any(is_same_stream_or_source(name, stream) and name != stream for name in self.detectors)
        return self.run_length * (2 if has_sources else 1)

    def _append_event(self, kind: str, stream: str, unix_seconds: float, facts: dict[str, Any]) -> None:
        """Append an event to the log, which keeps the latest MAX_EVENTS."""
        self.events.append({"event": kind, "stream": stream, "time": unix_seconds, **facts})
        del self.events[:-MAX_EVENTS]

    def compute_verdict(self, stream: str) -> dict[str, Any]:
        """Return the verdict on a stream as plain data, with those on its sources."""
        profile = self.profiles.get(stream)
        if not isinstance(profile, ReferenceProfile):
            return {"state": "unknown", "why": profile or "no request was observed", "images": 0, "charts": []}
        verdict = compute_stream_verdict(self.detectors.get(stream) or StreamDetector.start(profile, self.run_length))
        sources = {
            name[len(stream) + 1 :]: detector
            for name, detector in self.detectors.items()
            if is_same_stream_or_source(name, stream)
        }
        sources.pop("", None)
        return verdict | {
            "sources": {name: verdict_without_charts(detector) for name, detector in sources.items()},
            "replicas": len(self.ledger.replicas),
            "ticks": {"lost": self.ledger.lost, "late": self.ledger.late, "twice": self.ledger.twice},
        }

    def chart_history(self, stream: str) -> dict[str, Any]:
        """Return the height of each chart of a stream after each step."""
        profile = self.profiles.get(stream)
        detector = self.detectors.get(stream) or (
            StreamDetector.start(profile, self.run_length) if isinstance(profile, ReferenceProfile) else None
        )
        return chart_history(detector) if detector else {"images": [], "times": [], "threshold": [], "charts": {}}

    def _snapshot_arrays(self) -> dict[str, Any]:
        """Return everything that changes, as arrays for a snapshot."""
        ledger = self.ledger
        counts = {name: getattr(ledger, name) for name in ("closed", "late", "twice", "lost", "died", "gone", "dead")}
        replicas = {name: asdict(replica) for name, replica in ledger.replicas.items()}
        waiting = [(clock, name) for clock, rows in ledger.waiting.items() for name in rows]
        facts = {
            "counts": counts,
            "replicas": replicas,
            "waiting": waiting,
            "watches": [*self.detectors],
            "events": self.events,
        }
        arrays: dict[str, Any] = {"facts": np.array(json.dumps(facts))}
        for index, (clock, name) in enumerate(waiting):
            arrays[f"waiting.{index}"] = ledger.waiting[clock][name]
        for index, detector in enumerate(self.detectors.values()):
            arrays |= {f"{index}.{name}": value for name, value in detector.state_arrays().items()}
        return arrays

    def _restore_snapshot(self, arrays: dict[str, Any]) -> None:
        """Restore the state from the arrays of a snapshot."""
        facts = json.loads(str(arrays["facts"]))
        replicas = {name: Replica(**values) for name, values in facts["replicas"].items()}
        self.ledger = ReportLedger(replicas=replicas, **facts["counts"])
        for index, (clock, name) in enumerate(facts["waiting"]):
            self.ledger.waiting.setdefault(clock, {})[name] = arrays[f"waiting.{index}"]
        self.events = facts["events"]
        for index, name in enumerate(facts["watches"]):
            profile = self.profiles.get("/".join(name.split("/", 2)[:2]))
            if not isinstance(profile, ReferenceProfile):
                why = f"cannot restore the charts of {name}: its reference profile is no longer in {self.folder}"
                self._append_event("state lost", name, 0.0, {"why": why})
            else:
                self.detectors[name] = StreamDetector.start(profile, self.run_length)
                prefix = f"{index}."
                self.detectors[name].restore(
                    {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}
                )
        for name, detector in self.detectors.items():
            detector.run_length = self._required_run_length("/".join(name.split("/", 2)[:2]))


def is_same_stream_or_source(name: str, stream: str) -> bool:
    """Return whether a name is that of a stream or of one of its sources."""
    return name == stream or name.startswith(f"{stream}/")


def verdict_without_charts(detector: StreamDetector) -> dict[str, Any]:
    """Return the verdict on a stream without its charts."""
    return {name: value for name, value in compute_stream_verdict(detector).items() if name != "charts"}
