"""Alarm thresholds for a requested average run length: the mean number of images without drift per false alarm.

Streams are drawn from the reference by the thousand, each compared with a reference drawn anew, so that thresholds
account for the sampling error of the reference. The maxima of blocks of a stream have an exponential tail; a line
through it gives the threshold for any run length, without simulating streams of that length. First each chart is
brought to a common scale, the logarithm of its own run length; then the same is done for the largest of all charts.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from equipoise.drift.charts.baseline import ClassStatistics, ImageFeatures, fit_class_statistics
from equipoise.drift.charts.cusum import StepSums, build_cusum_parameters, initial_cusum_state
from equipoise.type_aliases import AnyArray

STEP_SIZES = (16.0, 64.0, 256.0)  # images per step for which thresholds are fitted; logarithmic interpolation between
CLASS_RUN_LENGTHS = (1.0, 4.0, 20.0, 100.0)  # images of one class in a row, on average; interpolated alike
STREAM_COUNT = 256
REFERENCE_COUNT = 32  # bootstrap references, each for some of the streams
BLOCK_IMAGES = 1024  # images in a block, of which the largest value counts
BLOCKS_PER_STREAM = 4
TAIL_SHARE = 0.3  # share of the block maxima that the line is fitted to


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
    image_features: ImageFeatures, labels: NDArray[np.int64], class_count: int, seed: int = 0
) -> Calibration:
    """Calibrate the thresholds of a reference, given the features and labels of its images."""
    statistics = fit_class_statistics(image_features, class_count)
    simulations = [
        [simulate_charts(image_features, labels, statistics, int(size), length, seed) for length in CLASS_RUN_LENGTHS]
        for size in STEP_SIZES
    ]
    tails = [[fit_exponential_tail(block_maxima(charts.values)) for charts in row] for row in simulations]
    offset, slope = (np.array([[tail[part] for tail in row] for row in tails]) for part in (0, 1))
    scales = Calibration(offset, slope, np.zeros((*offset.shape[:2], 1)), np.ones((*offset.shape[:2], 1)))
    joint_tails = [
        [fit_exponential_tail(block_maxima(charts.largest_scaled_values(scales))) for charts in row]
        for row in simulations
    ]
    return replace(
        scales,
        joint_offset=np.array([[tail[0] for tail in row] for row in joint_tails]),
        joint_slope=np.array([[tail[1] for tail in row] for row in joint_tails]),
    )


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
    image_features: ImageFeatures,
    labels: NDArray[np.int64],
    class_statistics: ClassStatistics,
    step_size: int,
    class_run_length: float,
    seed: int,
) -> SimulatedCharts:
    """Simulate the charts of STREAM_COUNT streams without drift, at one step size and one class run length."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    streams = SimulatedStreams.from_bootstrap(image_features, labels, class_statistics, class_run_length, rng)
    state = initial_cusum_state(
        build_cusum_parameters(class_statistics, streams.counts, streams.trace),
        streams.scores.shape[1],
        image_features.fourier_features.shape[1],
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


@dataclass(frozen=True, eq=False)
class SimulatedStreams:
    """Streams of images drawn from the reference without end, each compared with a bootstrap reference."""

    labels: NDArray[np.int64]
    """(images,) true classes: runs are of true classes, and a model errs in its own way on each"""
    predicted_classes: NDArray[np.int64]
    """(images,)"""
    fourier_features: NDArray[np.float32]
    """(images, Fourier features)"""
    scores: NDArray[np.float32]
    """(references x images, charted statistics)"""
    class_fourier_means: NDArray[np.float32]
    """(references, classes, Fourier features)"""
    counts: NDArray[np.float64]
    """(streams, classes) resampled number of reference images of each predicted class"""
    trace: NDArray[np.float64]
    """(streams, classes) mean squared residual of the Fourier features"""
    reference_indices: NDArray[np.int64]
    """(streams,) reference that each stream is compared with"""
    class_run_length: float
    """images of one class in a row, on average"""
    last_images: NDArray[np.int64]
    """(streams,) last image drawn for each stream"""

    @classmethod
    def from_bootstrap(
        cls,
        image_features: ImageFeatures,
        labels: NDArray[np.int64],
        class_statistics: ClassStatistics,
        class_run_length: float,
        rng: np.random.Generator,
    ) -> "SimulatedStreams":
        """Create streams compared with bootstrap references: images of each class drawn with replacement."""
        references = [
            fit_class_statistics(bootstrap_images(image_features, rng), len(class_statistics.counts))
            for _ in range(REFERENCE_COUNT)
        ]
        counts = rng.multinomial(
            len(image_features), class_statistics.counts / len(image_features), REFERENCE_COUNT
        ).astype(np.float64)
        return cls.from_references(references, counts, image_features, labels, class_run_length, rng)

    @classmethod
    def from_references(
        cls,
        references: list[ClassStatistics],
        counts: AnyArray,
        image_features: ImageFeatures,
        labels: NDArray[np.int64],
        class_run_length: float,
        rng: np.random.Generator,
    ) -> "SimulatedStreams":
        """Create streams of the given images, compared with several references of `counts` (references, classes)."""
        scores = np.concatenate([reference.scores(image_features) for reference in references]).astype(np.float32)
        means = np.stack([reference.waves for reference in references]).astype(np.float32)
        reference_indices = np.arange(STREAM_COUNT) % len(references)
        last_images = rng.integers(0, len(image_features), STREAM_COUNT)
        trace = np.stack([reference.trace for reference in references])
        return cls(
            labels,
            image_features.predicted_classes,
            image_features.fourier_features,
            scores,
            means,
            counts[reference_indices],
            trace[reference_indices],
            reference_indices,
            class_run_length,
            last_images,
        )

    def draw_step_sums(self, step_size: int, rng: np.random.Generator) -> StepSums:
        """Draw the next step of images of each stream and return its sums."""
        count, classes = len(self.predicted_classes), self.class_fourier_means.shape[1]
        indices = self.draw_image_indices(step_size, rng)
        rows = np.arange(STREAM_COUNT)[:, None]
        image_counts = np.bincount(
            (rows * classes + self.predicted_classes[indices]).ravel(), minlength=STREAM_COUNT * classes
        )
        counts = image_counts.reshape(STREAM_COUNT, classes).astype(np.float64)
        expected_sums = np.einsum("sc,scw->sw", counts, self.class_fourier_means[self.reference_indices])
        scores = sum_table_rows(indices + self.reference_indices[:, None] * count, self.scores)
        return StepSums(counts, scores, sum_table_rows(indices, self.fourier_features) - expected_sums)

    def draw_image_indices(self, step_size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw (streams, step size) image indices; while a run goes on, of the same class as the image before."""
        indices = np.concatenate(
            [self.last_images[:, None], rng.integers(0, len(self.predicted_classes), (STREAM_COUNT, step_size))], 1
        )
        starts = rng.random(indices.shape) < 1 / self.class_run_length
        starts[:, 0] = True
        start_of_run = np.maximum.accumulate(np.where(starts, np.arange(step_size + 1), 0), 1)
        leader = np.take_along_axis(indices, start_of_run, 1)
        members, firsts, counts = group_by_class(self.labels)
        classes = self.labels[leader]
        drawn = members[firsts[classes] + (rng.random(indices.shape) * counts[classes]).astype(np.int64)]
        self.last_images[:] = drawn[:, -1]
        return np.asarray(drawn[:, 1:])


def group_by_class(classes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return image indices sorted by class, the start of each class among them, and its number of images."""
    counts = np.bincount(classes)
    return np.argsort(classes, kind="stable"), np.cumsum(counts) - counts, counts


def sum_table_rows(row_indices: NDArray[np.int64], table: NDArray[np.float32]) -> AnyArray:
    """Return for each row of indices the sum of those rows of a table."""
    ends = np.arange(len(row_indices) + 1) * row_indices.shape[1]
    incidence = csr_array(
        (np.ones(row_indices.size, np.float32), row_indices.ravel(), ends), (len(row_indices), len(table))
    )
    return np.asarray(incidence @ table, np.float64)


def bootstrap_images(image_features: ImageFeatures, rng: np.random.Generator) -> ImageFeatures:
    """Draw images with replacement, as many of each predicted class as there are."""
    members, firsts, counts = group_by_class(image_features.predicted_classes)
    classes = np.repeat(np.arange(len(counts)), counts)
    indices = members[firsts[classes] + (rng.random(len(members)) * counts[classes]).astype(np.int64)]
    return ImageFeatures(
        image_features.statistics[indices],
        image_features.predicted_classes[indices],
        image_features.fourier_features[indices],
    )
