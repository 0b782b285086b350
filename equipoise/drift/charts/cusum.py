"""CUSUM charts: values that stay low while requests are like the reference, and keep rising once they are not.

Charts read the sums of steps of images, in order, and keep a state of fixed size. All operations work on many streams
at once (the leading axis), which is how thresholds are simulated.

The chart of a score is Page's cumulative sum of log likelihood ratios (1954) for a shift of one of three sizes, up or
down. Predicted classes have one chart for each class that may be gone or more frequent, slowed down by how long runs of
one class are. Their shares are those within the condition of each image, so a change between known conditions is no
alarm. Features are charted by the squared length of the decaying sum of their residuals, over its expected value
without drift.
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.cell_statistics import ClassStatistics
from equipoise.drift.charts.class_runs import ClassRunEstimator
from equipoise.drift.charts.sums import sum_over_conditions
from equipoise.type_aliases import FloatArray

SHIFT_SIZES = (0.75, 1.5, 3.0)  # sizes of shifts to detect, in standard deviations
SLACK_STANDARD_ERRORS = 2.0  # standard errors of the reference means that do not count as drift
CHART_MEMORY_IMAGES = 50.0  # memory of a chart for a shift of one standard deviation, in images
FEATURE_MEMORY_IMAGES = (32.0, 128.0, 512.0)  # images after which the weight of an image has fallen to 1/e
GONE_FACTOR = 0.1  # on the share of a class that is gone
MORE_FACTOR = 3.0  # on the odds of a class that is more frequent
MIN_STREAM_IMAGES = 64  # no alarm and no verdict before so many images
MIN_STEP_IMAGES = 16  # smallest step by which charts are updated, in images


@dataclass(frozen=True, eq=False)
class StepSums:
    """Sums over the images of one step, for each of several streams."""

    counts: FloatArray
    """(streams, cells) images by condition and predicted class"""
    scores: FloatArray
    """(streams, charted statistics)"""
    rest: FloatArray
    """(streams, Fourier features) residuals from the means of the cells"""

    @property
    def size(self) -> FloatArray:
        """Number of images in the step, (streams,)."""
        return np.asarray(self.counts.sum(1))

    def __add__(self, other: "StepSums") -> "StepSums":
        return StepSums(self.counts + other.counts, self.scores + other.scores, self.rest + other.rest)


@dataclass(frozen=True, eq=False)
class CusumParameters:
    """Increments of the charts, derived from the reference."""

    shifts: FloatArray
    """(shifts,) sizes of shifts to detect, in standard deviations"""
    class_shares: FloatArray
    """(classes,) or (streams, classes) shares of predicted classes, of all conditions together"""
    gains: FloatArray
    """([streams,] gone or more, conditions, classes) increment of a class chart by an image of the class"""
    losses: FloatArray
    """([streams,] gone or more, conditions, classes) increment by an image of another class in the same condition"""
    cell_shares: FloatArray
    """(cells,) or (streams, cells) shares of cells"""
    trace: FloatArray
    """(cells,) or (streams, cells) mean squared residual of the Fourier features"""
    reference_counts: FloatArray
    """(conditions, classes) reference images, at least 1"""

    def allowance(self, run_lengths: FloatArray) -> FloatArray:
        """Return (streams, shifts): what each image subtracts from a chart, given the class run lengths (streams,).

        Half of the shift to detect, plus the sampling error of the reference mean: of the mean over all classes where
        classes alternate, of one class mean where runs outlast the memory of a chart. A stream may show one condition
        alone, so the error is that of the condition with the fewest images.
        """
        total, each = (1 / self.reference_counts.sum(1)).max(), (1 / self.reference_counts).mean(1).max()
        alone = run_lengths[:, None] / (run_lengths[:, None] + CHART_MEMORY_IMAGES / self.shifts**2)
        return np.asarray(
            self.shifts * (self.shifts / 2 + SLACK_STANDARD_ERRORS * np.sqrt(total + (each - total) * alone))
        )


def build_cusum_parameters(
    class_statistics: ClassStatistics,
    counts: FloatArray | None = None,
    trace: FloatArray | None = None,
    condition_count: int = 1,
) -> CusumParameters:
    """Build the parameters for a reference; `counts` and `trace` are (streams, cells) if each stream has its own.

    A single class is never gone or more frequent: its charts stay at 0.
    """
    counts = class_statistics.counts if counts is None else counts
    class_count = len(class_statistics.counts) // condition_count
    shares = smoothed_shares(counts.reshape(*counts.shape[:-1], condition_count, class_count))
    if class_count > 1:
        odds = MORE_FACTOR * shares / (1 - shares)
        changed, unchanged = np.stack([GONE_FACTOR * shares, odds / (1 + odds)], -3), shares[..., None, :, :]
    else:
        changed = unchanged = np.full((*shares.shape[:-2], 2, condition_count, 1), 0.5)
    return CusumParameters(
        shifts=np.array(SHIFT_SIZES),
        class_shares=smoothed_shares(sum_over_conditions(counts, class_count)),
        gains=np.log(changed / unchanged),
        losses=np.log((1 - changed) / (1 - unchanged)),
        cell_shares=smoothed_shares(counts),
        trace=class_statistics.trace if trace is None else trace,
        reference_counts=np.maximum(class_statistics.counts, 1).reshape(condition_count, class_count),
    )


def smoothed_shares(counts: FloatArray) -> FloatArray:
    """Return shares of the last axis of counts, none of them zero."""
    return np.asarray((counts + 0.5) / (counts.sum(-1, keepdims=True) + 0.5 * counts.shape[-1]))


@dataclass(eq=False)
class CusumState:
    """State of all charts of several streams."""

    rules: CusumParameters
    streams: int
    runs: ClassRunEstimator
    scores: FloatArray
    """(streams, up or down, shifts, charted statistics)"""
    classes: FloatArray
    """(streams, gone or more, classes)"""
    rest: FloatArray
    """(streams, memories, Fourier features) decaying sums of residuals"""
    weight: FloatArray
    """(streams, memories, cells) sums of the weights of images"""
    squares: FloatArray
    """(streams, memories, cells) sums of the squared weights; they start as after a long past without drift"""

    def update(self, step_sums: StepSums) -> None:
        """Update all charts by one step of images."""
        size = step_sums.size
        self.runs.update(sum_over_conditions(step_sums.counts, self.rules.class_shares.shape[-1]))
        self._update_scores(step_sums.scores, size)
        self._update_classes(step_sums.counts)
        self._update_features(step_sums, size)

    def _update_scores(self, scores: FloatArray, size: FloatArray) -> None:
        rise = scores[:, None, :] * self.rules.shifts[:, None]
        fall = (size[:, None] * self.rules.allowance(self.runs.mean_run_length()))[..., None]
        for side, sign in enumerate((1, -1)):
            moved = self.scores[:, side]
            moved += sign * rise
            moved -= fall
            np.maximum(moved, 0, out=moved)

    def _update_classes(self, cell_counts: FloatArray) -> None:
        counts = cell_counts.reshape(self.streams, *self.rules.gains.shape[-2:])
        others = counts.sum(2, keepdims=True) - counts
        change = (counts[:, None] * self.rules.gains + others[:, None] * self.rules.losses).sum(2)
        self.classes += change / self.runs.variance_factor()[:, None, None]
        np.maximum(self.classes, 0, out=self.classes)

    def _update_features(self, step_sums: StepSums, size: FloatArray) -> None:
        for index, memory in enumerate(FEATURE_MEMORY_IMAGES):
            decay = np.exp(-size / memory)[:, None]
            mean_weight = (memory * (1 - decay[:, 0]) / np.maximum(size, 1))[:, None]  # averaged over the step
            rest = self.rest[:, index]  # the largest of these arrays, updated in place
            rest *= decay
            rest += mean_weight * step_sums.rest
            self.weight[:, index] = decay * self.weight[:, index] + mean_weight * step_sums.counts
            self.squares[:, index] = decay**2 * self.squares[:, index] + mean_weight**2 * step_sums.counts

    def reset(self, stream_indices: NDArray[np.int64]) -> None:
        """Reset the charts of some streams to their initial state."""
        for state in (self.scores, self.classes, self.rest, self.weight):
            state[stream_indices] = 0
        class_shares, cell_shares = (
            shares[stream_indices] if shares.ndim > 1 else shares
            for shares in (self.rules.class_shares, self.rules.cell_shares)
        )
        self.squares[stream_indices] = initial_squared_weights(cell_shares)
        fresh = ClassRunEstimator.initial(len(stream_indices), class_shares)
        for field in fields(fresh):
            getattr(self.runs, field.name)[stream_indices] = getattr(fresh, field.name)

    def limit(self, max_values: FloatArray) -> None:
        """Limit the score and class charts to the given maxima (charts,)."""
        scores = max_values[: self.scores[0].size].reshape(self.scores.shape[1:])
        np.minimum(self.scores, np.maximum(scores, 0), out=self.scores)
        classes = max_values[self.scores[0].size :][:2]
        np.minimum(self.classes, np.maximum(classes, 0)[:, None], out=self.classes)

    def values(self) -> FloatArray:
        """Return (streams, charts): scores, a class gone, a class more often, features."""
        weight = self.squares + SLACK_STANDARD_ERRORS * self.weight**2 / self.rules.reference_counts.ravel()
        expected = (weight * self.rules.trace[..., None, :]).sum(2)
        features = (self.rest**2).sum(2) / (expected + 1e-12)
        flat = (self.scores.reshape(self.streams, -1), self.classes.max(2), features)
        return np.concatenate(flat, 1)


def initial_cusum_state(
    parameters: CusumParameters, statistic_count: int, fourier_count: int, stream_count: int = 1
) -> CusumState:
    """Create the state of all charts before the first image."""
    cell_shares, memories = parameters.cell_shares, len(FEATURE_MEMORY_IMAGES)
    return CusumState(
        rules=parameters,
        streams=stream_count,
        runs=ClassRunEstimator.initial(stream_count, parameters.class_shares),
        scores=np.zeros((stream_count, 2, len(parameters.shifts), statistic_count)),
        classes=np.zeros((stream_count, 2, parameters.class_shares.shape[-1])),
        rest=np.zeros((stream_count, memories, fourier_count)),
        weight=np.zeros((stream_count, memories, cell_shares.shape[-1])),
        squares=np.tile(initial_squared_weights(cell_shares), (stream_count, 1, 1))
        if cell_shares.ndim == 1
        else initial_squared_weights(cell_shares),
    )


def initial_squared_weights(cell_shares: FloatArray) -> FloatArray:
    """Return (..., memories, cells): squared weights of a past without drift, so the first images do not alarm."""
    return np.array(FEATURE_MEMORY_IMAGES)[:, None] / 2 * cell_shares[..., None, :]
