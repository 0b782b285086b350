"""Clean images between false alarms, measured over references and streams drawn from a large pool."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from benchmarks.drift.image_pool import PROCESS_COUNT, ImagePool
from equipoise.drift.charts.cell_statistics import (
    ClassStatistics,
    ImageFeatures,
    fit_class_statistics,
)
from equipoise.drift.charts.chart_names import ChartNames
from equipoise.drift.charts.cusum import StepSums, build_cusum_parameters, initial_cusum_state
from equipoise.drift.features.image_schema import IMAGE_SCHEMA
from equipoise.drift.features.random_fourier import fit_random_features
from equipoise.drift.reference.false_alarms import find_and_reset_alarms
from equipoise.drift.reference.simulated_streams import LabelledFeatures
from equipoise.drift.reference.thresholds import Calibration, calibrate_thresholds

STREAM_COUNT = 200
CLASS_COUNT = 10


class RunLengthCase(NamedTuple):
    """Settings of one simulated reference and its streams."""

    seed: int
    reference_images: int
    step_size: int
    """images in a step"""
    class_run_length: float
    """images of one class in a row, on average; 1 draws images independently"""
    run_length: float
    """requested number of images to a false alarm"""
    stream_images: int
    """images over all streams"""


@dataclass(frozen=True, eq=False)
class SimulatedReference:
    """A calibrated reference, and the rest of the pool as its charts see it."""

    class_statistics: ClassStatistics
    calibration: Calibration
    image_features: ImageFeatures
    scores: NDArray[np.float32]
    members: NDArray[np.int64]
    """(classes, images of each) indices of the images that show each class"""


def build_table(pool: ImagePool, references: int, cases: list[tuple[float, float, int, int]]) -> list[str]:
    """Return a row for each (run length, class run length, step size, false alarms expected over all references)."""
    names = ChartNames(IMAGE_SCHEMA.names)
    lines = [
        "| asked | in a row of one class | pictures a step | realised / asked | least, most of a reference | alarms |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    for run_length, class_run, step_size, expected in cases:
        images = int(run_length * expected / references)
        alarms_by_reference = collect_alarms(
            pool, [RunLengthCase(seed, 1000, step_size, class_run, run_length, images) for seed in range(references)]
        )
        ratios = [images / run_length / max(len(alarms), 1) for alarms in alarms_by_reference]
        total = sum(map(len, alarms_by_reference))
        ratio = expected / max(total, 1)
        lines.append(
            f"| {run_length:,.0f} | {class_run:.0f} | {step_size} | {ratio:.2f} | {min(ratios):.2f}, {max(ratios):.2f}"
            f" | {total} |"
        )
        frequent = Counter(names.name_of(chart) for alarms in alarms_by_reference for chart in alarms).most_common(5)
        print(lines[-1], frequent, flush=True)
    return lines


def collect_alarms(pool: ImagePool, cases: list[RunLengthCase]) -> list[list[int]]:
    """Return for each case the chart of each false alarm."""
    with ProcessPoolExecutor(PROCESS_COUNT, initializer=share_pool, initargs=(pool,)) as workers:
        return list(workers.map(simulate_alarms, cases))


SHARED_POOL: list[ImagePool] = []


def share_pool(pool: ImagePool) -> None:
    """Give a worker process the pool once."""
    SHARED_POOL[:] = [pool]


def simulate_alarms(case: RunLengthCase) -> list[int]:
    """Return the charts that alarmed, over all streams; the charts of a stream are reset after its alarm."""
    rng = np.random.default_rng(case.seed)
    reference = draw_reference(SHARED_POOL[0], case, rng)
    state = initial_cusum_state(
        build_cusum_parameters(reference.class_statistics),
        len(IMAGE_SCHEMA),
        reference.image_features.fourier_features.shape[1],
        STREAM_COUNT,
    )
    age = np.zeros(STREAM_COUNT)
    alarms: list[int] = []
    for step in generate_steps(reference, case, rng):
        state.update(step)
        _, charts = find_and_reset_alarms(state, reference.calibration, case.run_length, case.step_size, age)
        alarms += charts.tolist()
    return alarms


def draw_reference(pool: ImagePool, case: RunLengthCase, rng: np.random.Generator) -> SimulatedReference:
    """Draw and calibrate a reference with as many images of each class; keep the rest of the pool for streams."""
    order = rng.permutation(len(pool))
    class_images = case.reference_images // CLASS_COUNT
    chosen = np.concatenate([order[pool.labels[order] == label][:class_images] for label in range(CLASS_COUNT)])
    rest = np.setdiff1d(np.arange(len(pool)), chosen)
    random_fourier = fit_random_features(pool.features[chosen])
    reference_features = pool.select(chosen).image_features(random_fourier, 1.0)
    stream_features = pool.select(rest).image_features(random_fourier, 1.0)
    class_statistics = fit_class_statistics(reference_features, CLASS_COUNT)
    calibration = calibrate_thresholds(
        LabelledFeatures(reference_features, pool.labels[chosen]), CLASS_COUNT, case.seed
    )
    members = [np.flatnonzero(pool.labels[rest] == label) for label in range(CLASS_COUNT)]
    min_class_images = min(map(len, members))
    scores = class_statistics.scores(stream_features).astype(np.float32)
    member_table = np.stack([indices[:min_class_images] for indices in members])
    return SimulatedReference(class_statistics, calibration, stream_features, scores, member_table)


def generate_steps(reference: SimulatedReference, case: RunLengthCase, rng: np.random.Generator) -> Iterator[StepSums]:
    """Yield the sums of one step after another, of all streams together."""
    current = rng.integers(0, CLASS_COUNT, STREAM_COUNT)
    for _ in range(case.stream_images // STREAM_COUNT // case.step_size):
        labels = np.empty((STREAM_COUNT, case.step_size), np.int64)
        for position in range(case.step_size):
            ends = rng.random(STREAM_COUNT) < 1 / case.class_run_length
            current = np.where(ends, rng.integers(0, CLASS_COUNT, STREAM_COUNT), current)
            labels[:, position] = current
        members = rng.integers(0, reference.members.shape[1], labels.shape)
        yield sum_step(reference, reference.members[labels, members])


def sum_step(reference: SimulatedReference, indices: NDArray[np.int64]) -> StepSums:
    """Return the sums of one step: (streams, images in the step) indices added up for each stream."""
    predicted_classes = reference.image_features.predicted_classes[indices]
    counts = np.stack([(predicted_classes == label).sum(1) for label in range(CLASS_COUNT)], 1).astype(float)
    ends = np.arange(len(indices) + 1) * indices.shape[1]
    shape = (len(indices), len(reference.image_features))
    membership = csr_array((np.ones(indices.size, np.float32), indices.ravel(), ends), shape)
    fourier_sums = np.asarray(membership @ reference.image_features.fourier_features, float)
    residuals = fourier_sums - counts @ reference.class_statistics.waves
    return StepSums(counts, np.asarray(membership @ reference.scores, float), residuals)
