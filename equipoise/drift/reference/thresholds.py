"""Thresholds for an asked average run length: how many clean pictures there are, on average, to a false alarm.

Streams are drawn from the reference by the thousand, each held against a reference drawn anew, so that thresholds know
how uncertain the reference itself is. The largest values of stretches of a stream fall off exponentially; a line
through their tail says how high a chart must be for any run length, however long, and no stream has to be that long.
First each chart alone is brought to one scale, the logarithm of its own run length; then the largest of all, together.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from equipoise.drift.charts.baseline import ClassStatistics, ImageFeatures, fit_class_statistics
from equipoise.drift.charts.cusum import StepSums, build_cusum_parameters, initial_cusum_state
from equipoise.type_aliases import AnyArray

STEP_SIZES = (16.0, 64.0, 256.0)  # pictures a step, for which thresholds are found; in between by the logarithm
CLASS_RUN_LENGTHS = (1.0, 4.0, 20.0, 100.0)  # pictures of one class in a row, on average; the same
STREAM_COUNT = 256
REFERENCE_COUNT = 32  # drawn anew, each for some of the streams
BLOCK_IMAGES = 1024  # pictures of which the largest value counts
BLOCKS_PER_STREAM = 4  # of each stream
TAIL_SHARE = 0.3  # the share of largest values through which the line is drawn


@dataclass(frozen=True, eq=False)
class Calibration:
    """How high charts go without drift, by the size of steps and the length of runs."""

    offset: AnyArray
    """(sizes, runs, charts): with `slope`, a chart's value as the logarithm of its run length alone"""
    slope: AnyArray
    joint_offset: AnyArray
    """(sizes, runs, 1): the same for the largest of all charts"""
    joint_slope: AnyArray

    def scale_values(self, values: AnyArray, step_size: AnyArray, class_run_length: AnyArray) -> AnyArray:
        """(streams, charts) as logarithms of run lengths, for steps and runs of so many pictures (streams,)."""
        offset, slope = (interpolate_table(table, step_size, class_run_length) for table in (self.offset, self.slope))
        return np.asarray(offset + slope * values)

    def threshold(self, run_length: float, step_size: AnyArray, class_run_length: AnyArray) -> AnyArray:
        """(streams,) what the largest scaled value must reach so that a false alarm comes once in `run_length`."""
        offset, slope = (
            interpolate_table(table, step_size, class_run_length)[:, 0]
            for table in (self.joint_offset, self.joint_slope)
        )
        return np.asarray((np.log(run_length) - offset) / slope)

    def chart_thresholds(self, run_length: float, step_size: AnyArray, class_run_length: AnyArray) -> AnyArray:
        """(streams, charts) the same for each chart's value as it comes."""
        offset, slope = (interpolate_table(table, step_size, class_run_length) for table in (self.offset, self.slope))
        return np.asarray((self.threshold(run_length, step_size, class_run_length)[:, None] - offset) / slope)


def interpolate_table(table: AnyArray, step_size: AnyArray, class_run_length: AnyArray) -> AnyArray:
    """A table's rows (by SIZES and RUNS) in between, by logarithms; beyond its ends, its ends."""
    (a, row), (b, column) = locate_in_grid(step_size, STEP_SIZES), locate_in_grid(class_run_length, CLASS_RUN_LENGTHS)
    a, b = a[:, None], b[:, None]
    upper = table[row, column] * (1 - b) + table[row, column + 1] * b
    lower = table[row + 1, column] * (1 - b) + table[row + 1, column + 1] * b
    return np.asarray(upper * (1 - a) + lower * a)


def locate_in_grid(values: AnyArray, grid: tuple[float, ...]) -> tuple[AnyArray, NDArray[np.int64]]:
    """For each value, the last end before it and the share of the way to the next."""
    place = np.interp(np.log(values), np.log(grid), np.arange(len(grid)))
    low = np.minimum(place.astype(np.int64), len(grid) - 2)
    return place - low, low


def calibrate_thresholds(
    image_features: ImageFeatures, labels: NDArray[np.int64], class_count: int, seed: int = 0
) -> Calibration:
    """For a reference and what its pictures really show."""
    held = fit_class_statistics(image_features, class_count)
    paths = [
        [simulate_charts(image_features, labels, held, int(size), length, seed) for length in CLASS_RUN_LENGTHS]
        for size in STEP_SIZES
    ]
    alone = [[fit_exponential_tail(block_maxima(one.values)) for one in row] for row in paths]
    offset, slope = (np.array([[one[part] for one in row] for row in alone]) for part in (0, 1))
    found = Calibration(offset, slope, np.zeros((*offset.shape[:2], 1)), np.ones((*offset.shape[:2], 1)))
    joint = [[fit_exponential_tail(block_maxima(one.largest_scaled_values(found))) for one in row] for row in paths]
    return replace(
        found,
        joint_offset=np.array([[one[0] for one in row] for row in joint]),
        joint_slope=np.array([[one[1] for one in row] for row in joint]),
    )


@dataclass(frozen=True, eq=False)
class SimulatedCharts:
    """How charts went over streams without drift."""

    step_size: int
    values: NDArray[np.float32]
    """(steps, streams, charts)"""
    class_run_lengths: NDArray[np.float32]
    """(steps, streams): how long they were taken to be"""

    def largest_scaled_values(self, calibration: Calibration) -> NDArray[np.float32]:
        """(steps, streams, 1): the largest scaled value."""
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
    """Some streams with steps of one size and runs of one length."""
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
    """(stretches, charts): the largest values of each."""
    steps, streams, count = values.shape
    return np.asarray(
        values.reshape(BLOCKS_PER_STREAM, steps // BLOCKS_PER_STREAM, streams, count).max(1).reshape(-1, count)
    )


def fit_exponential_tail(maxima: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Offset and slope of log run lengths over values, from the largest values (stretches, charts) of stretches."""
    start = np.quantile(maxima, 1 - TAIL_SHARE, axis=0)
    above = np.where(maxima > start, maxima - start, 0).sum(0) / np.maximum((maxima > start).sum(0), 1)
    slope = 1 / np.where(above > 0, above, 1.0)
    return np.log(BLOCK_IMAGES / -np.log1p(-TAIL_SHARE)) - slope * start, slope


@dataclass(frozen=True, eq=False)
class SimulatedStreams:
    """Pictures of the reference in any number, each stream held against a reference drawn anew."""

    labels: NDArray[np.int64]
    """what pictures show: runs are of that, and a model errs in its own way on each class"""
    predicted_classes: NDArray[np.int64]
    """what they were called"""
    fourier_features: NDArray[np.float32]
    scores: NDArray[np.float32]
    """(references x pictures, figures)"""
    class_fourier_means: NDArray[np.float32]
    """(references, classes, waves)"""
    counts: NDArray[np.float64]
    """(streams, classes): the pictures of each class that the reference has, as chance might have had it"""
    trace: NDArray[np.float64]
    """(streams, classes)"""
    reference_indices: NDArray[np.int64]
    """(streams,) which reference each is held against"""
    class_run_length: float
    """pictures of one class in a row, on average"""
    last_images: NDArray[np.int64]
    """(streams,) the last picture of each"""

    @classmethod
    def from_bootstrap(
        cls,
        image_features: ImageFeatures,
        labels: NDArray[np.int64],
        class_statistics: ClassStatistics,
        class_run_length: float,
        rng: np.random.Generator,
    ) -> "SimulatedStreams":
        """As many pictures of each class as there are, drawn with repetition."""
        others = [
            fit_class_statistics(bootstrap_images(image_features, rng), len(class_statistics.counts))
            for _ in range(REFERENCE_COUNT)
        ]
        counts = rng.multinomial(
            len(image_features), class_statistics.counts / len(image_features), REFERENCE_COUNT
        ).astype(np.float64)
        return cls.from_references(others, counts, image_features, labels, class_run_length, rng)

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
        """Of some pictures, each stream held against one of several references, of so many pictures by class."""
        scores = np.concatenate([one.scores(image_features) for one in references]).astype(np.float32)
        means = np.stack([one.waves for one in references]).astype(np.float32)
        owner = np.arange(STREAM_COUNT) % len(references)
        latest = rng.integers(0, len(image_features), STREAM_COUNT)
        trace = np.stack([one.trace for one in references])
        return cls(
            labels,
            image_features.predicted_classes,
            image_features.fourier_features,
            scores,
            means,
            counts[owner],
            trace[owner],
            owner,
            class_run_length,
            latest,
        )

    def draw_step_sums(self, step_size: int, rng: np.random.Generator) -> StepSums:
        """Some more pictures of each stream."""
        count, classes = len(self.predicted_classes), self.class_fourier_means.shape[1]
        places = self.draw_image_indices(step_size, rng)
        rows = np.arange(STREAM_COUNT)[:, None]
        image_counts = np.bincount(
            (rows * classes + self.predicted_classes[places]).ravel(), minlength=STREAM_COUNT * classes
        )
        counts = image_counts.reshape(STREAM_COUNT, classes).astype(np.float64)
        usual_rest = np.einsum("sc,scw->sw", counts, self.class_fourier_means[self.reference_indices])
        scores = sum_table_rows(places + self.reference_indices[:, None] * count, self.scores)
        return StepSums(counts, scores, sum_table_rows(places, self.fourier_features) - usual_rest)

    def draw_image_indices(self, step_size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """(streams, size) pictures: where a run goes on, another of the class before."""
        places = np.concatenate(
            [self.last_images[:, None], rng.integers(0, len(self.predicted_classes), (STREAM_COUNT, step_size))], 1
        )
        begins = rng.random(places.shape) < 1 / self.class_run_length
        begins[:, 0] = True
        since = np.maximum.accumulate(np.where(begins, np.arange(step_size + 1), 0), 1)
        leader = np.take_along_axis(places, since, 1)
        members, firsts, counts = group_by_class(self.labels)
        shown = self.labels[leader]
        drawn = members[firsts[shown] + (rng.random(places.shape) * counts[shown]).astype(np.int64)]
        self.last_images[:] = drawn[:, -1]
        return np.asarray(drawn[:, 1:])


def group_by_class(classes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Pictures class by class, where each class begins, and how many it has."""
    counts = np.bincount(classes)
    return np.argsort(classes, kind="stable"), np.cumsum(counts) - counts, counts


def sum_table_rows(row_indices: NDArray[np.int64], table: NDArray[np.float32]) -> AnyArray:
    """For each row of places, the sum of those rows of a table."""
    ends = np.arange(len(row_indices) + 1) * row_indices.shape[1]
    hits = csr_array((np.ones(row_indices.size, np.float32), row_indices.ravel(), ends), (len(row_indices), len(table)))
    return np.asarray(hits @ table, np.float64)


def bootstrap_images(image_features: ImageFeatures, rng: np.random.Generator) -> ImageFeatures:
    """As many pictures of each class, drawn from them with repetition."""
    members, firsts, counts = group_by_class(image_features.predicted_classes)
    classes = np.repeat(np.arange(len(counts)), counts)
    places = members[firsts[classes] + (rng.random(len(members)) * counts[classes]).astype(np.int64)]
    return ImageFeatures(
        image_features.statistics[places],
        image_features.predicted_classes[places],
        image_features.fourier_features[places],
    )
