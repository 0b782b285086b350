"""The watch over one stream of requests: sums in, charts on, and whether something changed.

It is moved by sums alone, in order; two watches that were given the same sums are in the same state to the last bit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.baseline import FIGURES
from equipoise.drift.charts.betting_test import Evidence
from equipoise.drift.charts.cusum import FEWEST, SHIFTS, STEP, Charts, Step, charts, rules
from equipoise.drift.charts.sums import Sums
from equipoise.drift.reference.profile import Known

Array = NDArray[Any]

LATEST = 512  # steps that are remembered one by one, to tell since when
EASED = np.log(10)  # by so much charts must fall below their threshold before an alarm is over
SCORES = 2 * len(SHIFTS) * len(FIGURES)
OTHERS = ("class gone", "class more often", *("features",) * 3)


NAMES = tuple(dict.fromkeys((*FIGURES, *OTHERS)))
"""of charts; several may share one"""


def chart_name(place: int) -> str:
    """What a chart looks at, by its place among the values."""
    return FIGURES[place % len(FIGURES)] if place < SCORES else OTHERS[place - SCORES]


@dataclass(frozen=True)
class Alarm:
    """A chart that was too high."""

    pictures: int
    """seen until then"""
    at: float
    """seconds since 1970"""
    chart: int
    """its place among the values"""


@dataclass(eq=False)
class Watch:
    """The state of one stream."""

    known: Known
    run_length: float
    """clean pictures to a false alarm, as asked"""
    charts: Charts
    evidence: Evidence
    pending: Sums
    """pictures too few for a step"""
    ends: NDArray[np.int64]
    """pictures looked at until the end of each of the latest steps"""
    asked: NDArray[np.int64]
    """pictures answered until then, looked at or not"""
    times: Array
    """seconds since 1970, of the same"""
    rows: Sums
    """their sums, without features"""
    zero: NDArray[np.int64]
    """(charts of scores, then of classes) pictures seen when each was last at nothing"""
    trace: NDArray[np.float32]
    """how high the charts of each name were after each of the latest steps, and the threshold"""
    alarm: Alarm | None = None
    over: int = 0
    """pictures seen when the last alarm was over: what changed since, changed after that"""

    @classmethod
    def begun(cls, known: Known, run_length: float) -> "Watch":
        """Before the first request."""
        layout = known.baseline.layout
        state = charts(rules(known.baseline.usual), layout.figures, layout.waves)
        none = np.zeros(0, np.int64)
        rows = np.zeros((0, layout.parts["waves"].start), np.int64)
        zero = np.zeros(state.scores.size + state.classes.size, np.int64)
        evidence = Evidence.begun(layout.figures)
        trace = np.zeros((0, len(NAMES) + 1), np.float32)
        return cls(known, run_length, state, evidence, layout.empty(), none, none, np.zeros(0), rows, zero, trace)

    @property
    def pictures(self) -> int:
        """Pictures that charts have seen."""
        return int(self.ends[-1]) if len(self.ends) else 0

    @property
    def answered(self) -> int:
        """Pictures that were answered until the last step."""
        return int(self.asked[-1]) if len(self.asked) else 0

    @property
    def images(self) -> int:
        """Pictures that were answered, those included that are too few for a step."""
        return self.answered + int(self.pending[self.known.baseline.layout.parts["all"]][0])

    def add(self, sums: Sums, at: float) -> bool:
        """Some more pictures; whether they set off an alarm."""
        layout = self.known.baseline.layout
        self.pending = self.pending + sums
        size = int(self.pending[layout.parts["classes"]].sum())
        if size < STEP:
            return False
        row, self.pending = self.pending, layout.empty()
        self._step(row)
        self.ends = np.append(self.ends, self.pictures + size)[-LATEST:]
        self.asked = np.append(self.asked, self.answered + int(row[layout.parts["all"]][0]))[-LATEST:]
        self.times = np.append(self.times, at)[-LATEST:]
        self.rows = np.concatenate([self.rows, row[None, : self.rows.shape[1]]])[-LATEST:]
        state = np.concatenate([self.charts.scores.ravel(), self.charts.classes.ravel()])
        self.zero = np.where(state == 0, self.pictures, self.zero)
        return self._alarmed(at)

    def _step(self, row: Sums) -> None:
        layout = self.known.baseline.layout
        counts, scores, waves, low, high = (
            layout.read(row, name) for name in ("classes", "scores", "waves", "low", "high")
        )
        usual = counts @ self.known.baseline.usual.waves
        self.charts.step(Step(counts[None], scores[None], (waves - usual)[None]))
        self.evidence.step(low, high)

    def _alarmed(self, at: float) -> bool:
        """Whether a chart is too high, and none was before."""
        values, threshold = self.values(), self.threshold()
        most = values.max()
        self.charts.limit(2 * self._heights())  # or what rose for an hour would take an hour to come down
        left = self.values() if most > threshold else values
        self.trace = np.concatenate([self.trace, heights(left, threshold)])[-LATEST:]
        if self.alarm is not None and most < threshold - EASED:
            self.alarm, self.over = None, self.pictures
        if self.alarm is not None or most < threshold or self.pictures < FEWEST:
            return False
        self.alarm = Alarm(self.pictures, at, int(values.argmax()))
        return True

    def values(self) -> Array:
        """(charts,) as logarithms of how many clean pictures it takes one by itself to be so high."""
        return np.asarray(self.known.calibration.scaled(self.charts.values(), *self._conditions())[0])

    def by_name(self) -> dict[str, float]:
        """The highest value of each name's charts."""
        return dict(zip(NAMES, highest(self.values()).tolist(), strict=True))

    def threshold(self) -> float:
        """What the highest must reach for an alarm."""
        return float(self.known.calibration.threshold(self.run_length, *self._conditions())[0])

    def _heights(self) -> Array:
        """(charts,) the same, for each as it comes."""
        return np.asarray(self.known.calibration.heights(self.run_length, *self._conditions())[0])

    def _conditions(self) -> tuple[Array, Array]:
        """How many pictures the last step had, and how long runs are."""
        size = np.diff(self.ends[-2:])[0] if len(self.ends) > 1 else max(self.pictures, STEP)
        return np.array([float(size)]), self.charts.runs.length()

    def state(self) -> dict[str, NDArray[Any]]:
        """All that changes, for a file."""
        found = {name: getattr(self, name) for name in ("pending", "ends", "asked", "times", "rows", "zero", "trace")}
        found |= {f"charts.{one.name}": getattr(self.charts, one.name) for one in self._changing()}
        found |= {f"runs.{one.name}": getattr(self.charts.runs, one.name) for one in fields(self.charts.runs)}
        alarm = self.alarm
        found["alarm"] = np.array([] if alarm is None else [alarm.pictures, alarm.at, alarm.chart], np.float64)
        return found | {"wealth": self.evidence.wealth, "over": np.array(self.over)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on where `state` was; it must be of the same reference."""
        for name in ("pending", "ends", "asked", "times", "rows", "zero", "trace"):
            setattr(self, name, fitting(state[name], getattr(self, name)))
        for one in self._changing():
            setattr(self.charts, one.name, fitting(state[f"charts.{one.name}"], getattr(self.charts, one.name)))
        for one in fields(self.charts.runs):
            setattr(self.charts.runs, one.name, fitting(state[f"runs.{one.name}"], getattr(self.charts.runs, one.name)))
        self.evidence.wealth = fitting(state["wealth"], self.evidence.wealth)
        self.over = int(state["over"])
        alarm = state["alarm"].tolist()
        self.alarm = Alarm(int(alarm[0]), alarm[1], int(alarm[2])) if alarm else None

    def _changing(self) -> list[Any]:
        return [one for one in fields(self.charts) if one.name not in ("rules", "streams", "runs")]


def highest(values: Array) -> Array:
    """Of the charts of each name."""
    found = np.concatenate(
        [values[:SCORES].reshape(-1, len(FIGURES)).max(0), np.full(len(NAMES) - len(FIGURES), -np.inf)]
    )
    np.maximum.at(found, [NAMES.index(name) for name in OTHERS], values[SCORES:])
    return found


def heights(values: Array, threshold: float) -> NDArray[np.float32]:
    """A row of the trace."""
    return np.append(highest(values), threshold)[None].astype(np.float32)


def fitting(found: NDArray[Any], there: NDArray[Any]) -> NDArray[Any]:
    """What was kept, if it has the form of what is there; the first axis of what grows may differ."""
    if found.dtype != there.dtype or found.shape[1:] != there.shape[1:]:
        raise ValueError(f"the state kept is of another form ({found.dtype} {found.shape})")
    return found.copy()
