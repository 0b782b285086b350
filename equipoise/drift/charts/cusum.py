"""Charts: figures that stay low while requests are like the reference, and rise without end once they are not.

They read sums of steps of some pictures, in order, and keep a state of fixed size. All of it works on many streams at
once (the leading axis), which is how thresholds are found.

A score's chart is Page's cumulative sum of log likelihood ratios (1954) for a shift of one of three sizes, up or down.
Predicted classes have one for each class that may be gone or come more often, slowed down by how much requests come
in runs of one class. Features are compared by the squared length of their residuals' decaying sum, over what that is
without drift.
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.baseline import ClassStatistics
from equipoise.drift.charts.class_runs import ClassRunEstimator
from equipoise.type_aliases import FloatArray

SHIFT_SIZES = (0.75, 1.5, 3.0)  # standard deviations: the sizes that are looked for
SLACK_STANDARD_ERRORS = 2.0  # standard errors of the reference's means that are no drift
CHART_MEMORY_IMAGES = 50.0  # pictures that a chart for a shift of one standard deviation weighs at a time
FEATURE_MEMORY_IMAGES = (32.0, 128.0, 512.0)  # pictures after which a feature's weight has fallen to a third
GONE_FACTOR, MORE_FACTOR = 0.1, 3.0  # of a class's share, of its odds: what its charts look for
MIN_STREAM_IMAGES = 64  # pictures about which anything is said
MIN_STEP_IMAGES = 16  # pictures at least between two looks at the charts


@dataclass(frozen=True, eq=False)
class StepSums:
    """What some pictures add up to, for each of several streams."""

    counts: FloatArray
    """(streams, classes) pictures by what they were called"""
    scores: FloatArray
    """(streams, figures)"""
    rest: FloatArray
    """(streams, waves): features less what is usual for their classes"""

    @property
    def size(self) -> FloatArray:
        """(streams,) pictures."""
        return np.asarray(self.counts.sum(1))


@dataclass(frozen=True, eq=False)
class CusumParameters:
    """How charts move, by the reference that they are made for."""

    shifts: FloatArray
    """(shifts,)"""
    class_shares: FloatArray
    """(classes,) of pictures that are called so, or (streams, classes)"""
    gains: FloatArray
    """(gone or more, classes) what a picture of the class adds, or (streams, gone or more, classes)"""
    losses: FloatArray
    """the same: what any other takes away"""
    trace: FloatArray
    """(classes,) or (streams, classes)"""
    reference_counts: FloatArray
    """(classes,) pictures of the reference"""

    def allowance(self, run_lengths: FloatArray) -> FloatArray:
        """(streams, shifts): what each picture takes away from a chart, for runs of some length (streams,).

        Half of the shift that is looked for, and what the reference's mean may be off: that of all classes where they
        alternate, that of one where runs outlast what a chart weighs at a time.
        """
        total, each = 1 / self.reference_counts.sum(), (1 / self.reference_counts).mean()
        alone = run_lengths[:, None] / (run_lengths[:, None] + CHART_MEMORY_IMAGES / self.shifts**2)
        return np.asarray(
            self.shifts * (self.shifts / 2 + SLACK_STANDARD_ERRORS * np.sqrt(total + (each - total) * alone))
        )


def build_cusum_parameters(
    class_statistics: ClassStatistics, counts: FloatArray | None = None, trace: FloatArray | None = None
) -> CusumParameters:
    """For a reference; `counts` and `trace` are (streams, classes) if each stream takes it for another."""
    counts = class_statistics.counts if counts is None else counts
    examples = counts.sum(-1, keepdims=True)
    sizes = np.array(SHIFT_SIZES)
    shares = (counts + 0.5) / (examples + 0.5 * len(class_statistics.counts))
    odds = MORE_FACTOR * shares / (1 - shares)
    changed, usually = np.stack([GONE_FACTOR * shares, odds / (1 + odds)], -2), shares[..., None, :]
    return CusumParameters(
        shifts=sizes,
        class_shares=shares,
        gains=np.log(changed / usually),
        losses=np.log((1 - changed) / (1 - usually)),
        trace=class_statistics.trace if trace is None else trace,
        reference_counts=np.maximum(class_statistics.counts, 1),
    )


@dataclass(eq=False)
class CusumState:
    """The state of all charts."""

    rules: CusumParameters
    streams: int
    runs: ClassRunEstimator
    scores: FloatArray
    """(streams, up or down, shifts, figures)"""
    classes: FloatArray
    """(streams, gone or more, classes)"""
    rest: FloatArray
    """(streams, memories, waves)"""
    weight: FloatArray
    """(streams, memories, classes): the sum of weights of pictures"""
    squares: FloatArray
    """(streams, memories, classes): of their squares; at first of a past that looked as usual"""

    def update(self, step_sums: StepSums) -> None:
        """Some more pictures."""
        size = step_sums.size
        self.runs.update(step_sums.counts)
        self._update_scores(step_sums.scores, size)
        self._update_classes(step_sums.counts, size)
        self._update_features(step_sums, size)

    def _update_scores(self, scores: FloatArray, size: FloatArray) -> None:
        rise = scores[:, None, :] * self.rules.shifts[:, None]
        fall = (size[:, None] * self.rules.allowance(self.runs.mean_run_length()))[..., None]
        for side, sign in enumerate((1, -1)):
            moved = self.scores[:, side]
            moved += sign * rise
            moved -= fall
            np.maximum(moved, 0, out=moved)

    def _update_classes(self, counts: FloatArray, size: FloatArray) -> None:
        others = size[:, None] - counts
        change = counts[:, None] * self.rules.gains + others[:, None] * self.rules.losses
        self.classes += change / self.runs.variance_factor()[:, None, None]
        np.maximum(self.classes, 0, out=self.classes)

    def _update_features(self, step_sums: StepSums, size: FloatArray) -> None:
        for place, memory in enumerate(FEATURE_MEMORY_IMAGES):
            kept = np.exp(-size / memory)[:, None]
            new = (memory * (1 - kept[:, 0]) / np.maximum(size, 1))[:, None]  # the mean weight within the step
            self.rest[:, place] = kept * self.rest[:, place] + new * step_sums.rest
            self.weight[:, place] = kept * self.weight[:, place] + new * step_sums.counts
            self.squares[:, place] = kept**2 * self.squares[:, place] + new**2 * step_sums.counts

    def reset(self, stream_indices: NDArray[np.int64]) -> None:
        """Some streams begin anew."""
        for state in (self.scores, self.classes, self.rest, self.weight):
            state[stream_indices] = 0
        shares = self.rules.class_shares
        shares = shares[stream_indices] if shares.ndim > 1 else shares
        self.squares[stream_indices] = initial_squared_weights(shares)
        fresh = ClassRunEstimator.initial(len(stream_indices), shares)
        for one in fields(fresh):
            getattr(self.runs, one.name)[stream_indices] = getattr(fresh, one.name)

    def limit(self, max_values: FloatArray) -> None:
        """Let no sum rise above its height (charts,)."""
        scores = max_values[: self.scores[0].size].reshape(self.scores.shape[1:])
        np.minimum(self.scores, np.maximum(scores, 0), out=self.scores)
        classes = max_values[self.scores[0].size :][:2]
        np.minimum(self.classes, np.maximum(classes, 0)[:, None], out=self.classes)

    def values(self) -> FloatArray:
        """(streams, charts): scores, a class gone, a class more often, features."""
        weight = self.squares + SLACK_STANDARD_ERRORS * self.weight**2 / self.rules.reference_counts
        expected = (weight * self.rules.trace[..., None, :]).sum(2)
        features = (self.rest**2).sum(2) / (expected + 1e-12)
        flat = (self.scores.reshape(self.streams, -1), self.classes.max(2), features)
        return np.concatenate(flat, 1)


def initial_cusum_state(
    parameters: CusumParameters, statistic_count: int, fourier_count: int, stream_count: int = 1
) -> CusumState:
    """As they begin."""
    classes, memories = parameters.class_shares.shape[-1], len(FEATURE_MEMORY_IMAGES)
    return CusumState(
        rules=parameters,
        streams=stream_count,
        runs=ClassRunEstimator.initial(stream_count, parameters.class_shares),
        scores=np.zeros((stream_count, 2, len(parameters.shifts), statistic_count)),
        classes=np.zeros((stream_count, 2, classes)),
        rest=np.zeros((stream_count, memories, fourier_count)),
        weight=np.zeros((stream_count, memories, classes)),
        squares=np.tile(initial_squared_weights(parameters.class_shares), (stream_count, 1, 1))
        if parameters.class_shares.ndim == 1
        else initial_squared_weights(parameters.class_shares),
    )


def initial_squared_weights(class_shares: FloatArray) -> FloatArray:
    """(..., memories, classes): of the weights of a past without drift, or the first few pictures would be far off."""
    return np.array(FEATURE_MEMORY_IMAGES)[:, None] / 2 * class_shares[..., None, :]
