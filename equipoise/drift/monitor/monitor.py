"""The one place where the sums of all replicas come together, and the watches that they move.

A stream is named model/version, and model/version/source where requests name one. All that changes the state is a
record of the journal, taken in order: the state after a restart is the state before.
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
from equipoise.storage.atomic import atomic_write

MAX_SOURCES = 32  # of a model, that have charts of their own
MAX_EVENTS = 500
ENTRIES_PER_SNAPSHOT = 200  # records from one snapshot to the next
OTHER_SOURCES = "others"  # sources that are too many


@dataclass(frozen=True)
class Report:
    """What a replica tells."""

    replica: str
    clock: int
    """it has told all up to this tick of the clock"""
    ticks: list[Tick]
    leaves: bool = False
    confirmed: int = 0
    """the last tick that it was told need not come again"""


@dataclass(eq=False)
class Monitor:
    """Everything that is known of requests."""

    folder: Path
    run_length: float
    """clean requests to a false alarm, over all charts of a model"""
    tick_seconds: float = 1.0
    """seconds between two reports of a replica"""
    ledger: ReportLedger = field(default_factory=ReportLedger)
    detectors: dict[str, StreamDetector] = field(default_factory=dict)
    profiles: dict[str, ReferenceProfile | str] = field(default_factory=dict)
    """by model/version; a sentence where nothing can be told"""
    events: list[dict[str, Any]] = field(default_factory=list)
    unsent_alarms: list[dict[str, Any]] = field(default_factory=list)
    """alarms that nobody was told of yet"""

    def __post_init__(self) -> None:
        self.journal = Journal(self.folder)
        self.has_saved_state = False
        try:
            self._load_saved_state()
        except Exception as error:  # whatever NumPy and zipfile raise of bytes that are damaged
            self.journal.set_aside()
            self.ledger, self.detectors, self.profiles, self.events = ReportLedger(), {}, {}, []
            why = f"what was kept in {self.folder} cannot be read ({error!r}): it was set aside, and all begins anew"
            self._append_event("state lost", "", 0.0, {"why": why})
        self.ledger.timeout_seconds = max(REPLICA_TIMEOUT_SECONDS, REPLICA_TIMEOUT_TICKS * self.tick_seconds)
        self.unsent_alarms.clear()  # whoever is to be told of these was told before

    def _load_saved_state(self) -> None:
        """The state that was kept."""
        for path in sorted(self.folder.glob("known-*.npz")):
            with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
                self._load_profile(str(held["stream"]), dict(held))
        if (state := self.journal.load_snapshot()) is not None:
            self._restore_snapshot(state)
        for facts, rows in self.journal.read_entries():
            self._apply_entry(facts, rows)
        self.has_saved_state = bool(self.ledger.replicas or self.detectors)

    def resume(self, now: float) -> None:
        """After a death of this monitor: replicas were not silent, nobody listened."""
        if self.has_saved_state:
            self.journal.append({"resume": True, "now": now}, b"")
            self._apply_entry({"resume": True, "now": now}, b"")

    def register(self, stream: str, arrays: Mapping[str, Any]) -> None:
        """A bundle's reference, or the reason why there is none."""
        name = hashlib.sha256(stream.encode()).hexdigest()[:16]
        with atomic_write(self.folder / f"known-{name}.npz") as temporary, temporary.open("wb") as file:
            np.savez(file, stream=np.array(stream), **arrays)
        self._load_profile(stream, arrays)

    def _load_profile(self, stream: str, arrays: Mapping[str, Any]) -> None:
        try:
            self.profiles[stream] = profile_from_arrays(arrays, int(arrays["classes"]), int(arrays["width"]))
        except ValueError as error:
            self.profiles[stream] = str(error)

    def submit_report(self, report: Report, now: float) -> int:
        """A replica's report; the number up to which its ticks need not come again."""
        rows = b"".join(row.tobytes() for tick in report.ticks for row in tick.rows.values())
        facts = {
            "replica": report.replica,
            "clock": report.clock,
            "leaves": report.leaves,
            "confirmed": report.confirmed,
            "now": now,
            "ticks": [
                [one.number, one.clock, [[name, len(row)] for name, row in one.rows.items()]] for one in report.ticks
            ],
        }
        self.journal.append(facts, rows)
        taken = self._apply_entry(facts, rows)
        if self.journal.entry_count >= ENTRIES_PER_SNAPSHOT:
            self.journal.write_snapshot(self._snapshot_arrays())
        return taken

    def reset(self, stream: str, now: float) -> None:
        """Begin anew with a stream and its sources, for a reason that a person has."""
        self.journal.append({"reset": stream, "now": now}, b"")
        self._apply_entry({"reset": stream, "now": now}, b"")

    def _apply_entry(self, entry: dict[str, Any], row_bytes: bytes) -> int:
        """One record of the journal."""
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
        ticks, at = [], 0
        for number, clock, streams in entry["ticks"]:
            held = {}
            for name, length in streams:
                held[name] = np.frombuffer(row_bytes, np.int64, length, at)
                at += 8 * length
            ticks.append(Tick(number, clock, held))
        died = self.ledger.died
        told = {name: entry[name] for name in ("clock", "now", "leaves", "confirmed") if name in entry}
        taken = self.ledger.add_report(entry["replica"], ticks, **told)
        for clock, due in self.ledger.pop_closed_ticks(entry["now"]):
            self._process_tick(due, clock / 1000)
        if self.ledger.died > died:
            self._append_event("replica lost", "", entry["now"], {"ticks": self.ledger.died - died})
        return taken

    def _process_tick(self, rows: SumsByStream, unix_seconds: float) -> None:
        """One tick of the clock, complete."""
        whole: SumsByStream = {}
        for name, row in sorted(rows.items()):
            stream, _, source = name.partition("\n")
            whole[stream] = whole[stream] + row if stream in whole else row
            if source:
                self._add_sums(self._source_stream(stream, source), row, unix_seconds)
        for stream in sorted(whole):
            self._add_sums(stream, whole[stream], unix_seconds)

    def _source_stream(self, stream: str, source: str) -> str:
        """The stream of a source; those that come after many share one."""
        there = [name for name in self.detectors if is_same_stream_or_source(name, stream) and name != stream]
        name = f"{stream}/{source}"
        return name if name in there or len(there) < MAX_SOURCES else f"{stream}/{OTHER_SOURCES}"

    def _add_sums(self, name: str, sums: Any, unix_seconds: float) -> None:
        stream = "/".join(name.split("/", 2)[:2])
        held = self.profiles.get(stream)
        if not isinstance(held, ReferenceProfile) or len(sums) != held.baseline.layout.row_length:
            return
        if name not in self.detectors:
            self.detectors[name] = StreamDetector.start(held, self.run_length)
        watch = self.detectors[name]
        watch.run_length = self._required_run_length(stream)
        had = watch.alarm
        if watch.add_sums(sums, unix_seconds):
            self._append_event("alarm", name, unix_seconds, compute_stream_verdict(watch))
            self.unsent_alarms.append(self.events[-1])
        elif had is not None and watch.alarm is None:
            self._append_event("over", name, unix_seconds, {})

    def _required_run_length(self, stream: str) -> float:
        """Of each watch of a stream: those of sources and that of all share the alarms."""
        several = any(is_same_stream_or_source(one, stream) and one != stream for one in self.detectors)
        return self.run_length * (2 if several else 1)

    def _append_event(self, kind: str, stream: str, unix_seconds: float, facts: dict[str, Any]) -> None:
        self.events.append({"event": kind, "stream": stream, "time": unix_seconds, **facts})
        del self.events[:-MAX_EVENTS]

    def compute_verdict(self, stream: str) -> dict[str, Any]:
        """The verdict on a stream, with those of its sources."""
        held = self.profiles.get(stream)
        if not isinstance(held, ReferenceProfile):
            return {"state": "unknown", "why": held or "no request was seen", "images": 0, "charts": []}
        found = compute_stream_verdict(self.detectors.get(stream) or StreamDetector.start(held, self.run_length))
        sources = {
            name[len(stream) + 1 :]: one
            for name, one in self.detectors.items()
            if is_same_stream_or_source(name, stream)
        }
        sources.pop("", None)
        return found | {
            "sources": {name: verdict_without_charts(one) for name, one in sources.items()},
            "replicas": len(self.ledger.replicas),
            "ticks": {"lost": self.ledger.lost, "late": self.ledger.late, "twice": self.ledger.twice},
        }

    def chart_history(self, stream: str) -> dict[str, Any]:
        """The charts of a stream, step by step."""
        held = self.profiles.get(stream)
        watch = self.detectors.get(stream) or (
            StreamDetector.start(held, self.run_length) if isinstance(held, ReferenceProfile) else None
        )
        return chart_history(watch) if watch else {"images": [], "times": [], "threshold": [], "charts": {}}

    def _snapshot_arrays(self) -> dict[str, Any]:
        """All that changes, as arrays."""
        ledger = self.ledger
        counts = {name: getattr(ledger, name) for name in ("closed", "late", "twice", "lost", "died", "gone", "dead")}
        replicas = {name: asdict(one) for name, one in ledger.replicas.items()}
        waiting = [(clock, name) for clock, rows in ledger.waiting.items() for name in rows]
        facts = {
            "counts": counts,
            "replicas": replicas,
            "waiting": waiting,
            "watches": [*self.detectors],
            "events": self.events,
        }
        arrays: dict[str, Any] = {"facts": np.array(json.dumps(facts))}
        for place, (clock, name) in enumerate(waiting):
            arrays[f"waiting.{place}"] = ledger.waiting[clock][name]
        for place, watch in enumerate(self.detectors.values()):
            arrays |= {f"{place}.{name}": value for name, value in watch.state_arrays().items()}
        return arrays

    def _restore_snapshot(self, arrays: dict[str, Any]) -> None:
        """Go on from such a state."""
        facts = json.loads(str(arrays["facts"]))
        replicas = {name: Replica(**one) for name, one in facts["replicas"].items()}
        self.ledger = ReportLedger(replicas=replicas, **facts["counts"])
        for place, (clock, name) in enumerate(facts["waiting"]):
            self.ledger.waiting.setdefault(clock, {})[name] = arrays[f"waiting.{place}"]
        self.events = facts["events"]
        for place, name in enumerate(facts["watches"]):
            held = self.profiles.get("/".join(name.split("/", 2)[:2]))
            if not isinstance(held, ReferenceProfile):
                self._append_event("state lost", name, 0.0, {"why": f"its reference is no longer in {self.folder}"})
            else:
                self.detectors[name] = StreamDetector.start(held, self.run_length)
                prefix = f"{place}."
                self.detectors[name].restore(
                    {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}
                )
        for name, watch in self.detectors.items():
            watch.run_length = self._required_run_length("/".join(name.split("/", 2)[:2]))


def is_same_stream_or_source(name: str, stream: str) -> bool:
    """Whether a stream is another, or one of its sources."""
    return name == stream or name.startswith(f"{stream}/")


def verdict_without_charts(detector: StreamDetector) -> dict[str, Any]:
    """A source's verdict without its charts."""
    return {name: value for name, value in compute_stream_verdict(detector).items() if name != "charts"}
