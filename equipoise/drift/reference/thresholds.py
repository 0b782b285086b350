"""Alarm thresholds for a requested average run length: the mean number of images without drift per false alarm.

Streams are drawn from the reference by the thousand, each compared with a reference drawn anew, so that thresholds
account for the sampling error of the reference; where several conditions are known, streams of each alone and of all
of them mixed count alike. The maxima of blocks of a stream have an exponential tail; a line
through it gives the threshold for any run length, without simulating streams of that length. First each chart is
brought to a common scale, the logarithm of its own run length; then the same is done for the largest of all charts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.cell_statistics import ClassStatistics, fit_cell_statistics
from equipoise.drift.charts.cusum import (
    FEATURE_MEMORY_IMAGES,
    SHIFT_SIZES,
    CusumState,
    StepSums,
    build_cusum_parameters,
    initial_cusum_state,
)
from equipoise.drift.reference.simulated_streams import STREAM_COUNT, LabelledFeatures, SimulatedStreams
from equipoise.type_aliases import AnyArray

STEP_SIZES = (16.0, 32.0, 64.0, 128.0, 256.0)  # images per step with fitted thresholds; logarithmic interpolation
CLASS_RUN_LENGTHS = (1.0, 4.0, 20.0, 100.0)  # images of one class in a row, on average; interpolated alike
BLOCK_IMAGES = 1024  # images in a block, of which the largest value counts
BLOCKS_PER_STREAM = 4
TAIL_SHARE = 0.3  # share of the block maxima that the line is fitted to
CLASS_CHARTS = slice(-2 - len(FEATURE_MEMORY_IMAGES), -len(FEATURE_MEMORY_IMAGES))
"""charts of predicted classes, among the values of all charts"""


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scales of the charts without drift, by step size and class run length."""

    offset: AnyArray
    """(sizes, runs, charts) with `slope`: scales the value of a chart to the logarithm of its own run length"""
    slope: AnyArray
    """(sizes, runs, charts) factor of the value, which `offset` is added to"""
    joint_offset: AnyArray
    """(sizes, runs, 1) with `joint_slope`: scales the largest of all charts to the logarithm of its run length"""
    joint_slope: AnyArray
    """(sizes, runs, 1) factor of the largest value, which `joint_offset` is added to"""

    def scale_values(self, values: AnyArray, step_size: AnyArray, class_run_length: AnyArray) -> AnyArray:
        """Scale chart values (streams, charts) to logarithms of run lengths, given step sizes and class run lengths."""
        offset, slope = (interpolate_table(table, step_size, class_run_length) for table in (self.offset, self.slope))
        return np.asarray(offset + slope * values)

    def threshold(self, run_length: float, step_size: AnyArray, class_run_length: AnyArray) -> AnyArray:
        """Return (streams,) the largest scaled value at which an alarm is false once in `run_length` images."""
        offset, slope = (
            interpolate_table(table, step_size, class_run_length)[:, 0]
            for table in (self.joint_offset, self.joint_slope)
        )
        return np.asarray((np.log(run_length) - offset) / slope)

    def chart_thresholds(self, run_length: float, step_size: AnyArray, class_run_length: AnyArray) -> AnyArray:
        """Return (streams, charts) the same threshold in the unscaled values of each chart."""
        offset, slope = (interpolate_table(table, step_size, class_run_length) for table in (self.offset, self.slope))
        return np.asarray((self.threshold(run_length, step_size, class_run_length)[:, None] - offset) / slope)


def interpolate_table(table: AnyArray, step_size: AnyArray, class_run_length: AnyArray) -> AnyArray:
    """Interpolate a table over STEP_SIZES and CLASS_RUN_LENGTHS on logarithmic axes, constant beyond its ends.

    Tables of earlier versions have three sizes instead of five, with the same ends.
    """
    grid = tuple(np.geomspace(STEP_SIZES[0], STEP_SIZES[-1], len(table)))
    sizes, index = np.unique(step_size, return_inverse=True)  # one, unless streams have steps of their own
    (a, row), (b, column) = locate_in_grid(sizes, grid), locate_in_grid(class_run_length, CLASS_RUN_LENGTHS)
    a, b = a[:, None, None], b[:, None]
    tables = table[row] * (1 - a) + table[row + 1] * a
    return np.asarray(tables[index, column] * (1 - b) + tables[index, column + 1] * b)


def locate_in_grid(values: AnyArray, grid: tuple[float, ...]) -> tuple[AnyArray, NDArray[np.int64]]:
    """Return for each value the fraction of its grid cell on a logarithmic axis, and the index of the cell."""
    position = np.interp(np.log(values), np.log(grid), np.arange(len(grid)))
    low = np.minimum(position.astype(np.int64), len(grid) - 2)
    return position - low, low


def calibrate_thresholds(
    images: LabelledFeatures,
    class_count: int,
    seed: int = 0,
    rare_events: NDArray[np.int64] | None = None,
    joint_seed: int | None = None,
) -> Calibration:
    """Calibrate the thresholds of a reference, given its images.

    `rare_events` are columns of statistics that are 0 or 1, and may be always 0 in the reference. Simulated charts of
    these never move, so their values count as what they are, logarithms of likelihood ratios: one event is no alarm.

    The largest of all charts is fitted on streams of its own, if `joint_seed` is given. Each chart fits the streams
    that it was scaled on too well, the more so the more charts there are: with the 473 of a table of ten columns,
    11 and 15 of 20 streams alarmed where 8 were expected, and 6 and 9 with streams of their own.
    """
    simulate: Callable[[float, int], list[SimulatedCharts]] = partial(
        simulate_charts, images, fit_cell_statistics(images.features, class_count, images.condition_count)
    )
    if joint_seed is None:
        simulate, joint_seed = cache(simulate), seed
    tails = [[fit_chart_tails(charts) for charts in simulate(length, seed)] for length in CLASS_RUN_LENGTHS]
    offset, slope, moves = (
        np.array([[tail[part] for tail in row] for row in tails]).swapaxes(0, 1) for part in range(3)
    )
    if class_count == 1:
        offset[..., CLASS_CHARTS] = 0  # they never move
    if not images.features.fourier_features.shape[1]:
        offset[..., CLASS_CHARTS.stop :] = 0  # nor do these
    if rare_events is not None:
        charts = find_score_charts(rare_events, images.features.statistics.shape[1] + 2)
        offset[..., charts] = np.where(moves[..., charts], offset[..., charts], 0)
    scales = Calibration(offset, slope, np.zeros((*offset.shape[:2], 1)), np.ones((*offset.shape[:2], 1)))
    joint_tails = np.array(
        [
            [
                fit_exponential_tail(block_maxima(charts.largest_scaled_values(scales)))
                for charts in simulate(length, joint_seed)
            ]
            for length in CLASS_RUN_LENGTHS
        ]
    )
    return replace(
        scales, joint_offset=joint_tails[:, :, 0].swapaxes(0, 1), joint_slope=joint_tails[:, :, 1].swapaxes(0, 1)
    )


def fit_chart_tails(simulated: "SimulatedCharts") -> tuple[AnyArray, AnyArray, NDArray[np.bool_]]:
    """Return offset and slope of each chart (charts,), and whether it was ever above 0."""
    maxima = block_maxima(simulated.values)
    return *fit_exponential_tail(maxima), np.asarray((maxima > 0).any(0))


def find_score_charts(columns: NDArray[np.int64], statistic_count: int) -> NDArray[np.int64]:
    """Return the indices of all charts of the given statistics among the values of all charts."""
    return np.asarray(np.arange(2 * len(SHIFT_SIZES))[:, None] * statistic_count + columns).ravel()


@dataclass(frozen=True, eq=False)
class SimulatedCharts:
    """Chart values over simulated streams without drift."""

    step_size: int
    """images per step"""
    values: NDArray[np.float32]
    """(steps, streams, charts)"""
    class_run_lengths: NDArray[np.float32]
    """(steps, streams) estimated class run lengths"""

    def largest_scaled_values(self, calibration: Calibration) -> NDArray[np.float32]:
        """Return (steps, streams, 1): the largest scaled value of all charts."""
        size = np.full(self.class_run_lengths.shape[1], float(self.step_size))
        steps = zip(self.values, self.class_run_lengths, strict=True)
        return np.stack([calibration.scale_values(value, size, runs).max(1, keepdims=True) for value, runs in steps])


def simulate_charts(
    images: LabelledFeatures,
    class_statistics: ClassStatistics,
    class_run_length: float,
    seed: int,
    step_sizes: Sequence[float] = STEP_SIZES,
) -> list[SimulatedCharts]:
    """Simulate the charts of STREAM_COUNT streams without drift, at one class run length and several step sizes.

    All sizes see the same images, which are drawn once; sizes are multiples of the first.
    """
    rng = np.random.Generator(np.random.Philox(key=seed))
    streams = SimulatedStreams.from_bootstrap(images, class_statistics, class_run_length, rng)
    parameters = build_cusum_parameters(class_statistics, streams.counts, streams.trace, images.condition_count)
    shape = streams.scores.shape[1], images.features.fourier_features.shape[1], STREAM_COUNT
    recorders = [ChartRecorder(int(size), initial_cusum_state(parameters, *shape)) for size in step_sizes]
    smallest = recorders[0].step_size
    for _ in range(BLOCK_IMAGES * BLOCKS_PER_STREAM // smallest):
        step_sums = streams.draw_step_sums(smallest, rng)
        for recorder in recorders:
            recorder.add_sums(step_sums)
    return [recorder.build_result() for recorder in recorders]


@dataclass(eq=False)
class ChartRecorder:
    """Recorder of the values of charts that are updated by steps of one size, from sums of fewer images."""

    step_size: int
    state: CusumState
    pending: StepSums | None = None
    """sums of images that are too few for a step"""
    values: list[NDArray[np.float32]] = field(default_factory=list)
    class_run_lengths: list[NDArray[np.float32]] = field(default_factory=list)

    def add_sums(self, step_sums: StepSums) -> None:
        """Add the sums of some images; once they are enough for a step, update the charts and record them."""
        pending = self.pending + step_sums if self.pending else step_sums
        if pending.size[0] < self.step_size:
            self.pending = pending
            return
        self.pending = None
        self.state.update(pending)
        self.values.append(self.state.values().astype(np.float32))
        self.class_run_lengths.append(self.state.runs.mean_run_length().astype(np.float32))

    def build_result(self) -> SimulatedCharts:
        """Return the values and class run lengths of all steps."""
        return SimulatedCharts(self.step_size, np.stack(self.values), np.stack(self.class_run_lengths))


def block_maxima(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return (blocks, charts): the largest value in each block of values (steps, streams, charts)."""
    steps, streams, count = values.shape
    return np.asarray(
        values.reshape(BLOCKS_PER_STREAM, steps // BLOCKS_PER_STREAM, streams, count).max(1).reshape(-1, count)
    )


def fit_exponential_tail(maxima: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Fit offset and slope of log run lengths over chart values to block maxima (blocks, charts)."""
    start = np.quantile(maxima, 1 - TAIL_SHARE, axis=0)
    mean_excess = np.where(maxima > start, maxima - start, 0).sum(0) / np.maximum((maxima > start).sum(0), 1)
    slope = 1 / np.where(mean_excess > 0, mean_excess, 1.0)
    return np.log(BLOCK_IMAGES / -np.log1p(-TAIL_SHARE)) - slope * start, slope
