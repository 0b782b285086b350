"""Whether false alarms come as rarely as asked: counted on streams of pictures that thresholds know nothing of."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.baseline import Seen, Usual
from equipoise.drift.calibration import STREAMS, Calibration, Streams
from equipoise.drift.charts import FEWEST, STEP, charts, rules

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
    size, age, alarms = np.full(STREAMS, float(STEP)), np.zeros(STREAMS), 0
    for _ in range(LONG // STEP):
        state.step(streams.step(STEP, rng))
        age += STEP
        runs = state.runs.length()
        highest = found.scaled(state.values(), size, runs).max(1)
        high = np.flatnonzero((highest >= found.threshold(ASKED, size, runs)) & (age >= FEWEST))
        state.again(high)
        age[high] = 0
        alarms += len(high)
    return Verified(ASKED, STREAMS * LONG, alarms)
