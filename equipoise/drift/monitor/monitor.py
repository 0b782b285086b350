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

from equipoise.drift.detector import Watch
from equipoise.drift.diagnosis.stream_verdict import traced, verdict
from equipoise.drift.monitor.journal import Journal
from equipoise.drift.monitor.report_ledger import SILENT, TICKS, Ledger, Replica, Rows, Tick
from equipoise.drift.reference.profile import Known, known
from equipoise.storage import atomic as store

MOST_SOURCES = 32  # of a model, that have charts of their own
MOST_EVENTS = 500
EVERY = 200  # records from one snapshot to the next
REST = "others"  # sources that are too many


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
    tick: float = 1.0
    """seconds between two reports of a replica"""
    ledger: Ledger = field(default_factory=Ledger)
    watches: dict[str, Watch] = field(default_factory=dict)
    known: dict[str, Known | str] = field(default_factory=dict)
    """by model/version; a sentence where nothing can be told"""
    events: list[dict[str, Any]] = field(default_factory=list)
    fresh: list[dict[str, Any]] = field(default_factory=list)
    """alarms that nobody was told of yet"""

    def __post_init__(self) -> None:
        self.journal = Journal(self.folder)
        self.resumed = False
        try:
            self._recover()
        except Exception as error:  # whatever NumPy and zipfile raise of bytes that are damaged
            self.journal.set_aside()
            self.ledger, self.watches, self.known, self.events = Ledger(), {}, {}, []
            why = f"what was kept in {self.folder} cannot be read ({error!r}): it was set aside, and all begins anew"
            self._event("state lost", "", 0.0, {"why": why})
        self.ledger.silent = max(SILENT, TICKS * self.tick)
        self.fresh.clear()  # whoever is to be told of these was told before

    def _recover(self) -> None:
        """The state that was kept."""
        for path in sorted(self.folder.glob("known-*.npz")):
            with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
                self._learn(str(held["stream"]), dict(held))
        if (state := self.journal.latest()) is not None:
            self._restore(state)
        for facts, rows in self.journal.read():
            self._apply(facts, rows)
        self.resumed = bool(self.ledger.replicas or self.watches)

    def resume(self, now: float) -> None:
        """After a death of this monitor: replicas were not silent, nobody listened."""
        if self.resumed:
            self.journal.add({"resume": True, "now": now}, b"")
            self._apply({"resume": True, "now": now}, b"")

    def register(self, stream: str, arrays: Mapping[str, Any]) -> None:
        """A bundle's reference, or the reason why there is none."""
        name = hashlib.sha256(stream.encode()).hexdigest()[:16]
        with store.whole(self.folder / f"known-{name}.npz") as temporary, temporary.open("wb") as file:
            np.savez(file, stream=np.array(stream), **arrays)
        self._learn(stream, arrays)

    def _learn(self, stream: str, arrays: Mapping[str, Any]) -> None:
        try:
            self.known[stream] = known(arrays, int(arrays["classes"]), int(arrays["width"]))
        except ValueError as error:
            self.known[stream] = str(error)

    def take(self, report: Report, now: float) -> int:
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
        self.journal.add(facts, rows)
        taken = self._apply(facts, rows)
        if self.journal.records >= EVERY:
            self.journal.snapshot(self._state())
        return taken

    def reset(self, stream: str, now: float) -> None:
        """Begin anew with a stream and its sources, for a reason that a person has."""
        self.journal.add({"reset": stream, "now": now}, b"")
        self._apply({"reset": stream, "now": now}, b"")

    def _apply(self, facts: dict[str, Any], rows: bytes) -> int:
        """One record of the journal."""
        if "reset" in facts:
            for name in [name for name in self.watches if belongs(name, facts["reset"])]:
                del self.watches[name]
            self._event("reset", facts["reset"], facts["now"], {})
            return 0
        if "resume" in facts:
            for replica in self.ledger.replicas.values():
                replica.heard = facts["now"]
            self._event("monitor restarted", "", facts["now"], {})
            return 0
        ticks, at = [], 0
        for number, clock, streams in facts["ticks"]:
            held = {}
            for name, length in streams:
                held[name] = np.frombuffer(rows, np.int64, length, at)
                at += 8 * length
            ticks.append(Tick(number, clock, held))
        died = self.ledger.died
        told = {name: facts[name] for name in ("clock", "now", "leaves", "confirmed") if name in facts}
        taken = self.ledger.take(facts["replica"], ticks, **told)
        for clock, due in self.ledger.due(facts["now"]):
            self._move(due, clock / 1000)
        if self.ledger.died > died:
            self._event("replica lost", "", facts["now"], {"ticks": self.ledger.died - died})
        return taken

    def _move(self, rows: Rows, at: float) -> None:
        """One tick of the clock, complete."""
        whole: Rows = {}
        for name, row in sorted(rows.items()):
            stream, _, source = name.partition("\n")
            whole[stream] = whole[stream] + row if stream in whole else row
            if source:
                self._add(self._sourced(stream, source), row, at)
        for stream in sorted(whole):
            self._add(stream, whole[stream], at)

    def _sourced(self, stream: str, source: str) -> str:
        """The stream of a source; those that come after many share one."""
        there = [name for name in self.watches if belongs(name, stream) and name != stream]
        name = f"{stream}/{source}"
        return name if name in there or len(there) < MOST_SOURCES else f"{stream}/{REST}"

    def _add(self, name: str, row: Any, at: float) -> None:
        stream = "/".join(name.split("/", 2)[:2])
        held = self.known.get(stream)
        if not isinstance(held, Known) or len(row) != held.baseline.layout.length:
            return
        if name not in self.watches:
            self.watches[name] = Watch.begun(held, self.run_length)
        watch = self.watches[name]
        watch.run_length = self._asked(stream)
        had = watch.alarm
        if watch.add(row, at):
            self._event("alarm", name, at, verdict(watch))
            self.fresh.append(self.events[-1])
        elif had is not None and watch.alarm is None:
            self._event("over", name, at, {})

    def _asked(self, stream: str) -> float:
        """Of each watch of a stream: those of sources and that of all share the alarms."""
        several = any(belongs(one, stream) and one != stream for one in self.watches)
        return self.run_length * (2 if several else 1)

    def _event(self, kind: str, stream: str, at: float, facts: dict[str, Any]) -> None:
        self.events.append({"event": kind, "stream": stream, "time": at, **facts})
        del self.events[:-MOST_EVENTS]

    def judged(self, stream: str) -> dict[str, Any]:
        """The verdict on a stream, with those of its sources."""
        held = self.known.get(stream)
        if not isinstance(held, Known):
            return {"state": "unknown", "why": held or "no request was seen", "images": 0, "charts": []}
        found = verdict(self.watches.get(stream) or Watch.begun(held, self.run_length))
        sources = {name[len(stream) + 1 :]: one for name, one in self.watches.items() if belongs(name, stream)}
        sources.pop("", None)
        return found | {
            "sources": {name: brief(one) for name, one in sources.items()},
            "replicas": len(self.ledger.replicas),
            "ticks": {"lost": self.ledger.lost, "late": self.ledger.late, "twice": self.ledger.twice},
        }

    def traced(self, stream: str) -> dict[str, Any]:
        """The charts of a stream, step by step."""
        held = self.known.get(stream)
        watch = self.watches.get(stream) or (Watch.begun(held, self.run_length) if isinstance(held, Known) else None)
        return traced(watch) if watch else {"images": [], "times": [], "threshold": [], "charts": {}}

    def _state(self) -> dict[str, Any]:
        """All that changes, as arrays."""
        ledger = self.ledger
        counts = {name: getattr(ledger, name) for name in ("closed", "late", "twice", "lost", "died", "gone", "dead")}
        replicas = {name: asdict(one) for name, one in ledger.replicas.items()}
        waiting = [(clock, name) for clock, rows in ledger.waiting.items() for name in rows]
        facts = {
            "counts": counts,
            "replicas": replicas,
            "waiting": waiting,
            "watches": [*self.watches],
            "events": self.events,
        }
        arrays: dict[str, Any] = {"facts": np.array(json.dumps(facts))}
        for place, (clock, name) in enumerate(waiting):
            arrays[f"waiting.{place}"] = ledger.waiting[clock][name]
        for place, watch in enumerate(self.watches.values()):
            arrays |= {f"{place}.{name}": value for name, value in watch.state().items()}
        return arrays

    def _restore(self, arrays: dict[str, Any]) -> None:
        """Go on from such a state."""
        facts = json.loads(str(arrays["facts"]))
        replicas = {name: Replica(**one) for name, one in facts["replicas"].items()}
        self.ledger = Ledger(replicas=replicas, **facts["counts"])
        for place, (clock, name) in enumerate(facts["waiting"]):
            self.ledger.waiting.setdefault(clock, {})[name] = arrays[f"waiting.{place}"]
        self.events = facts["events"]
        for place, name in enumerate(facts["watches"]):
            held = self.known.get("/".join(name.split("/", 2)[:2]))
            if not isinstance(held, Known):
                self._event("state lost", name, 0.0, {"why": f"its reference is no longer in {self.folder}"})
            else:
                self.watches[name] = Watch.begun(held, self.run_length)
                prefix = f"{place}."
                self.watches[name].restore(
                    {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}
                )
        for name, watch in self.watches.items():
            watch.run_length = self._asked("/".join(name.split("/", 2)[:2]))


def belongs(name: str, stream: str) -> bool:
    """Whether a stream is another, or one of its sources."""
    return name == stream or name.startswith(f"{stream}/")


def brief(watch: Watch) -> dict[str, Any]:
    """A source's verdict without its charts."""
    return {name: value for name, value in verdict(watch).items() if name != "charts"}
