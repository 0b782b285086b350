"""Whether false alarms come as rarely as asked: counted on streams of pictures that thresholds know nothing of."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.baseline import Seen, Usual
from equipoise.drift.charts.cusum import FEWEST, STEP, Charts, charts, rules
from equipoise.drift.reference.thresholds import STREAMS, Calibration, Streams

Array = NDArray[Any]

ASKED = 2000.0  # pictures to a false alarm: few, so that some are seen
LONG = 1024  # pictures of each stream


@dataclass(frozen=True)
class Verified:
    """What was counted."""

    asked: float
    pictures: int
    alarms: int

    @property
    def realised(self) -> float:
        """Pictures to a false alarm."""
        return self.pictures / max(self.alarms, 1)


def verified(held: Usual, found: Calibration, seen: Seen, labels: NDArray[np.int64], seed: int = 0) -> Verified:
    """By pictures kept apart from the reference, and what they really show, drawn with repetition."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    streams = Streams.against([held], held.counts[None], seen, labels, 1.0, rng)
    state = charts(rules(held), streams.scores.shape[1], seen.waves.shape[1], STREAMS)
    age, alarms = np.zeros(STREAMS), 0
    for _ in range(LONG // STEP):
        state.step(streams.step(STEP, rng))
        alarms += len(called(state, found, ASKED, STEP, age))
    return Verified(ASKED, STREAMS * LONG, alarms)


def called(state: Charts, found: Calibration, asked: float, size: int, age: Array) -> NDArray[np.int64]:
    """The chart of each stream that alarms after a step of so many pictures; it begins anew, and so does its `age`."""
    age += size
    conditions = np.full(state.streams, float(size)), state.runs.length()
    scaled = found.scaled(state.values(), *conditions)
    high = np.flatnonzero((scaled.max(1) >= found.threshold(asked, *conditions)) & (age >= FEWEST))
    state.again(high)
    age[high] = 0
    return np.asarray(scaled[high].argmax(1))
