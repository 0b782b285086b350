"""Alarm thresholds for a requested average run length: the mean number of images without drift per false alarm.

Streams are drawn from the reference by the thousand, each compared with a reference drawn anew, so that thresholds
account for the sampling error of the reference; where several conditions are known, streams of each alone and of all
of them mixed count alike. The maxima of blocks of a stream have an exponential tail; a line
through it gives the threshold for any run length, without simulating streams of that length. First each chart is
brought to a common scale, the logarithm of its own run length; then the same is done for the largest of all charts.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.cell_statistics import ClassStatistics, fit_cell_statistics
from equipoise.drift.charts.cusum import (
    FEATURE_MEMORY_IMAGES,
    SHIFT_SIZES,
    build_cusum_parameters,
    initial_cusum_state,
)
from equipoise.drift.reference.simulated_streams import STREAM_COUNT, LabelledFeatures, SimulatedStreams
from equipoise.type_aliases import AnyArray

STEP_SIZES = (16.0, 64.0, 256.0)  # images per step for which thresholds are fitted; logarithmic interpolation between
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
    """Interpolate a table over STEP_SIZES and CLASS_RUN_LENGTHS on logarithmic axes, constant beyond its ends."""
    (a, row), (b, column) = locate_in_grid(step_size, STEP_SIZES), locate_in_grid(class_run_length, CLASS_RUN_LENGTHS)
    a, b = a[:, None], b[:, None]
    upper = table[row, column] * (1 - b) + table[row, column + 1] * b
    lower = table[row + 1, column] * (1 - b) + table[row + 1, column + 1] * b
    return np.asarray(upper * (1 - a) + lower * a)


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
    simulate: Callable[[int, float, int], SimulatedCharts] = partial(
        simulate_charts, images, fit_cell_statistics(images.features, class_count, images.condition_count)
    )
    if joint_seed is None:
        simulate, joint_seed = cache(simulate), seed
    tails = [
        [fit_chart_tails(simulate(int(size), length, seed)) for length in CLASS_RUN_LENGTHS] for size in STEP_SIZES
    ]
    offset, slope, moves = (np.array([[tail[part] for tail in row] for row in tails]) for part in range(3))
    if class_count == 1:
        offset[..., CLASS_CHARTS] = 0  # they never move
    if not images.features.fourier_features.shape[1]:
        offset[..., CLASS_CHARTS.stop :] = 0  # nor do these
    if rare_events is not None:
        charts = find_score_charts(rare_events, images.features.statistics.shape[1] + 2)
        offset[..., charts] = np.where(moves[..., charts], offset[..., charts], 0)
    scales = Calibration(offset, slope, np.zeros((*offset.shape[:2], 1)), np.ones((*offset.shape[:2], 1)))
    joint_tails = [
        [
            fit_exponential_tail(block_maxima(simulate(int(size), length, joint_seed).largest_scaled_values(scales)))
            for length in CLASS_RUN_LENGTHS
        ]
        for size in STEP_SIZES
    ]
    return replace(
        scales,
        joint_offset=np.array([[tail[0] for tail in row] for row in joint_tails]),
        joint_slope=np.array([[tail[1] for tail in row] for row in joint_tails]),
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
    step_size: int,
    class_run_length: float,
    seed: int,
) -> SimulatedCharts:
    """Simulate the charts of STREAM_COUNT streams without drift, at one step size and one class run length."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    streams = SimulatedStreams.from_bootstrap(images, class_statistics, class_run_length, rng)
    state = initial_cusum_state(
        build_cusum_parameters(class_statistics, streams.counts, streams.trace, images.condition_count),
        streams.scores.shape[1],
        images.features.fourier_features.shape[1],
        STREAM_COUNT,
    )
    values, runs = [], []
    for _ in range(BLOCK_IMAGES * BLOCKS_PER_STREAM // step_size):
        state.update(streams.draw_step_sums(step_size, rng))
        values.append(state.values().astype(np.float32))
        runs.append(state.runs.mean_run_length().astype(np.float32))
    return SimulatedCharts(step_size, np.stack(values), np.stack(runs))


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
