"""Charts: figures that stay low while requests are like the reference, and rise without end once they are not.

They read sums of steps of some pictures, in order, and keep a state of fixed size. All of it works on many streams at
once (the leading axis), which is how thresholds are found.

A score's chart is Page's cumulative sum of log likelihood ratios (1954) for a shift of one of three sizes, up or down.
Predicted classes have one for each class that may be gone or come more often, slowed down by how much requests come
in runs of one class. Features are compared by the squared length of their residuals' decaying sum, over what that is
without drift.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.baseline import Usual
from equipoise.drift.charts.class_runs import Runs

Array = NDArray[Any]

SHIFTS = (0.75, 1.5, 3.0)  # standard deviations: the sizes that are looked for
SLACK = 2.0  # standard errors of the reference's means that are no drift
REACH = 50.0  # pictures that a chart for a shift of one standard deviation weighs at a time
MEMORIES = (32.0, 128.0, 512.0)  # pictures after which a feature's weight has fallen to a third
GONE, MORE = 0.1, 3.0  # of a class's share, of its odds: what its charts look for
FEWEST = 64  # pictures about which anything is said
STEP = 16  # pictures at least between two looks at the charts


@dataclass(frozen=True, eq=False)
class Step:
    """What some pictures add up to, for each of several streams."""

    counts: Array
    """(streams, classes) pictures by what they were called"""
    scores: Array
    """(streams, figures)"""
    rest: Array
    """(streams, waves): features less what is usual for their classes"""

    @property
    def size(self) -> Array:
        """(streams,) pictures."""
        return np.asarray(self.counts.sum(1))


@dataclass(frozen=True, eq=False)
class Rules:
    """How charts move, by the reference that they are made for."""

    shifts: Array
    """(shifts,)"""
    shares: Array
    """(classes,) of pictures that are called so, or (streams, classes)"""
    gains: Array
    """(gone or more, classes) what a picture of the class adds, or (streams, gone or more, classes)"""
    losses: Array
    """the same: what any other takes away"""
    trace: Array
    """(classes,) or (streams, classes)"""
    examples: Array
    """(classes,) pictures of the reference"""

    def drift(self, runs: Array) -> Array:
        """(streams, shifts): what each picture takes away from a chart, for runs of some length (streams,).

        Half of the shift that is looked for, and what the reference's mean may be off: that of all classes where they
        alternate, that of one where runs outlast what a chart weighs at a time.
        """
        total, each = 1 / self.examples.sum(), (1 / self.examples).mean()
        alone = runs[:, None] / (runs[:, None] + REACH / self.shifts**2)
        return np.asarray(self.shifts * (self.shifts / 2 + SLACK * np.sqrt(total + (each - total) * alone)))


def rules(usual: Usual, counts: Array | None = None, trace: Array | None = None) -> Rules:
    """For a reference; `counts` and `trace` are (streams, classes) if each stream takes it for another."""
    counts = usual.counts if counts is None else counts
    examples = counts.sum(-1, keepdims=True)
    sizes = np.array(SHIFTS)
    shares = (counts + 0.5) / (examples + 0.5 * len(usual.counts))
    odds = MORE * shares / (1 - shares)
    changed, usually = np.stack([GONE * shares, odds / (1 + odds)], -2), shares[..., None, :]
    return Rules(
        shifts=sizes,
        shares=shares,
        gains=np.log(changed / usually),
        losses=np.log((1 - changed) / (1 - usually)),
        trace=usual.trace if trace is None else trace,
        examples=np.maximum(usual.counts, 1),
    )


@dataclass(eq=False)
class Charts:
    """The state of all charts."""

    rules: Rules
    streams: int
    runs: Runs
    scores: Array
    """(streams, up or down, shifts, figures)"""
    classes: Array
    """(streams, gone or more, classes)"""
    rest: Array
    """(streams, memories, waves)"""
    weight: Array
    """(streams, memories, classes): the sum of weights of pictures"""
    squares: Array
    """(streams, memories, classes): of their squares; at first of a past that looked as usual"""

    def step(self, step: Step) -> None:
        """Some more pictures."""
        size = step.size
        self.runs.step(step.counts)
        self._scores(step.scores, size)
        self._classes(step.counts, size)
        self._features(step, size)

    def _scores(self, scores: Array, size: Array) -> None:
        rise = scores[:, None, :] * self.rules.shifts[:, None]
        fall = (size[:, None] * self.rules.drift(self.runs.length()))[..., None]
        for side, sign in enumerate((1, -1)):
            moved = self.scores[:, side]
            moved += sign * rise
            moved -= fall
            np.maximum(moved, 0, out=moved)

    def _classes(self, counts: Array, size: Array) -> None:
        others = size[:, None] - counts
        change = counts[:, None] * self.rules.gains + others[:, None] * self.rules.losses
        self.classes += change / self.runs.widening()[:, None, None]
        np.maximum(self.classes, 0, out=self.classes)

    def _features(self, step: Step, size: Array) -> None:
        for place, memory in enumerate(MEMORIES):
            kept = np.exp(-size / memory)[:, None]
            new = (memory * (1 - kept[:, 0]) / np.maximum(size, 1))[:, None]  # the mean weight within the step
            self.rest[:, place] = kept * self.rest[:, place] + new * step.rest
            self.weight[:, place] = kept * self.weight[:, place] + new * step.counts
            self.squares[:, place] = kept**2 * self.squares[:, place] + new**2 * step.counts

    def again(self, rows: NDArray[np.int64]) -> None:
        """Some streams begin anew."""
        for state in (self.scores, self.classes, self.rest, self.weight):
            state[rows] = 0
        shares = self.rules.shares
        shares = shares[rows] if shares.ndim > 1 else shares
        self.squares[rows] = squares(shares)
        fresh = Runs.begun(len(rows), shares)
        for one in fields(fresh):
            getattr(self.runs, one.name)[rows] = getattr(fresh, one.name)

    def limit(self, heights: Array) -> None:
        """Let no sum rise above its height (charts,)."""
        scores = heights[: self.scores[0].size].reshape(self.scores.shape[1:])
        np.minimum(self.scores, np.maximum(scores, 0), out=self.scores)
        classes = heights[self.scores[0].size :][:2]
        np.minimum(self.classes, np.maximum(classes, 0)[:, None], out=self.classes)

    def values(self) -> Array:
        """(streams, charts): scores, a class gone, a class more often, features."""
        weight = self.squares + SLACK * self.weight**2 / self.rules.examples
        expected = (weight * self.rules.trace[..., None, :]).sum(2)
        features = (self.rest**2).sum(2) / (expected + 1e-12)
        flat = (self.scores.reshape(self.streams, -1), self.classes.max(2), features)
        return np.concatenate(flat, 1)


def charts(rules: Rules, figures: int, waves: int, streams: int = 1) -> Charts:
    """As they begin."""
    classes, memories = rules.shares.shape[-1], len(MEMORIES)
    return Charts(
        rules=rules,
        streams=streams,
        runs=Runs.begun(streams, rules.shares),
        scores=np.zeros((streams, 2, len(rules.shifts), figures)),
        classes=np.zeros((streams, 2, classes)),
        rest=np.zeros((streams, memories, waves)),
        weight=np.zeros((streams, memories, classes)),
        squares=np.tile(squares(rules.shares), (streams, 1, 1)) if rules.shares.ndim == 1 else squares(rules.shares),
    )


def squares(shares: Array) -> Array:
    """(..., memories, classes): of the weights of a past without drift, or the first few pictures would be far off."""
    return np.array(MEMORIES)[:, None] / 2 * shares[..., None, :]
