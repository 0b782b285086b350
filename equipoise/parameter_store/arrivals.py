"""Log of arrivals of a run with `--sync async:S`: the pushes of each update, from which its weights follow.

The file has one line of JSON for each lap:

    {"step": 20, "steps": 10, "workers": 3, "updates": [[[30, 0, 1]], [[31, 0, 0], [32, 0, 2]], ...]}

An update is a list of pushes, each with its ticket, the version pulled (the number of updates in the lap before it) and
the worker that computed it.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from equipoise.errors import EquipoiseError
from equipoise.number_bounds import Count
from equipoise.parameter_store.order import Push, Update
from equipoise.storage.json_decoding import decode_json_bytes

ARRIVALS_FILE = "arrivals.jsonl"


@dataclass(frozen=True, kw_only=True)
class LapArrivals:
    """Updates of a lap, in their order."""

    step: Count
    """global batches done when the lap ended"""
    steps: Count
    """global batches of the lap"""
    workers: Count
    """processes that took part"""
    updates: tuple[tuple[Push, ...], ...]
    """pushes of each update, in the order of their tickets"""

    @classmethod
    def from_updates(cls, updates: Iterable[Update], *, step: int, steps: int, workers: int) -> "LapArrivals":
        """Build the log of a lap that ended at `step`."""
        return cls(step=step, steps=steps, workers=workers, updates=tuple(update.pushes for update in updates))

    @property
    def staleness(self) -> list[int]:
        """Staleness of each push: updates between the weights that it was computed at and the one that contains it."""
        return [version - push.version for version, pushes in enumerate(self.updates) for push in pushes]

    @property
    def mean_staleness(self) -> float:
        """Mean staleness of the pushes."""
        return sum(self.staleness) / len(self.staleness)

    def to_line(self) -> str:
        """Return the line of the log."""
        return json.dumps(asdict(self), separators=(",", ":")) + "\n"


def parse_arrivals(content: bytes, name: str, tickets_per_step: int, staleness: int) -> list[LapArrivals]:
    """Parse a log of arrivals; refuse one that no run with these options writes."""
    laps: list[LapArrivals] = []
    for number, line in enumerate(content.splitlines(), start=1):
        problem = f"cannot read {name}: line {number} is damaged"
        lap = decode_json_bytes(line, LapArrivals, code="run-damaged", problem=problem)
        if reason := find_arrivals_problem(lap, laps[-1].step if laps else 0, tickets_per_step, staleness):
            raise EquipoiseError("run-damaged", f"{problem}: {reason}", "restore it, or train the run again")
        laps.append(lap)
    return laps


def find_arrivals_problem(lap: LapArrivals, last_step: int, tickets_per_step: int, staleness: int) -> str:
    """Return why a lap cannot follow `last_step`, or "" if it can."""
    first_step = lap.step - lap.steps
    if first_step != last_step:
        return f"it begins after step {first_step:,}, the line before ends at step {last_step:,}"
    if lap.workers > tickets_per_step:
        return f"it has {lap.workers:,} workers, the run at most {tickets_per_step:,}"
    if any(not pushes or list(pushes) != sorted(pushes) for pushes in lap.updates):
        return "the pushes of an update must be in the order of their tickets, and at least one"
    tickets = sorted(push.ticket for pushes in lap.updates for push in pushes)
    lap_tickets = range(first_step * tickets_per_step, lap.step * tickets_per_step)
    if len(tickets) != len(lap_tickets) or tickets != list(lap_tickets):
        return f"its tickets are not those of steps {first_step + 1:,} to {lap.step:,}, each once"
    return find_push_problem(lap, staleness)


def find_push_problem(lap: LapArrivals, staleness: int) -> str:
    """Return why one of the pushes of a lap is impossible, or ""."""
    for version, pushes in enumerate(lap.updates):
        for push in pushes:
            if not 0 <= push.version <= version:
                return f"ticket {push.ticket:,} was computed at version {push.version:,} and applied at {version:,}"
            if version - push.version > staleness:
                return f"ticket {push.ticket:,} is {version - push.version:,} updates old, the run allows {staleness:,}"
            if not 0 <= push.worker < lap.workers:
                return f"ticket {push.ticket:,} was computed by worker {push.worker:,} of {lap.workers:,}"
    return ""
