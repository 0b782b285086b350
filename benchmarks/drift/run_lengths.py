"""How many clean pictures there really are to a false alarm, over references and streams drawn from a large pool."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from benchmarks.drift.image_pool import PROCESSES, Pool
from equipoise.drift.charts.baseline import CHARTED_FEATURES, ClassStatistics, ImageFeatures, fit_class_statistics
from equipoise.drift.charts.cusum import StepSums, build_cusum_parameters, initial_cusum_state
from equipoise.drift.detector import chart_name
from equipoise.drift.features.random_fourier import fit_random_features
from equipoise.drift.reference.false_alarms import find_and_reset_alarms
from equipoise.drift.reference.thresholds import Calibration, calibrate_thresholds

STREAMS = 200
CLASSES = 10


class Case(NamedTuple):
    """What is asked of one reference."""

    seed: int
    examples: int
    """of the reference"""
    size: int
    """pictures a step"""
    runs: float
    """pictures of one class in a row, on average; 1 is independent"""
    asked: float
    pictures: int
    """over all streams"""


@dataclass(frozen=True, eq=False)
class Held:
    """A reference, and the rest of the pool as it sees it."""

    usual: ClassStatistics
    calibration: Calibration
    seen: ImageFeatures
    scores: NDArray[np.float32]
    members: NDArray[np.int64]
    """(classes, each) places of the pictures that show each class"""


def table(pool: Pool, references: int, cases: list[tuple[float, float, int, int]]) -> list[str]:
    """A row for each (asked, runs, size, false alarms that are expected over all references)."""
    lines = [
        "| asked | in a row of one class | pictures a step | realised / asked | least, most of a reference | alarms |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    for asked, runs, size, expected in cases:
        pictures = int(asked * expected / references)
        found = counted(pool, [Case(seed, 1000, size, runs, asked, pictures) for seed in range(references)])
        each = [pictures / asked / max(len(alarms), 1) for alarms in found]
        total = sum(map(len, found))
        ratio = expected / max(total, 1)
        lines.append(
            f"| {asked:,.0f} | {runs:.0f} | {size} | {ratio:.2f} | {min(each):.2f}, {max(each):.2f} | {total} |"
        )
        often = Counter(chart_name(chart) for alarms in found for chart in alarms).most_common(5)
        print(lines[-1], often, flush=True)
    return lines


def counted(pool: Pool, cases: list[Case]) -> list[list[int]]:
    """For each case, the chart of each false alarm."""
    with ProcessPoolExecutor(PROCESSES, initializer=share_pool, initargs=(pool,)) as workers:
        return list(workers.map(alarms, cases))


SHARED: list[Pool] = []


def share_pool(pool: Pool) -> None:
    """Give a process the pool once."""
    SHARED[:] = [pool]


def alarms(case: Case) -> list[int]:
    """The charts that alarmed, over all streams; one that did begins anew."""
    rng = np.random.default_rng(case.seed)
    held = drawn(SHARED[0], case, rng)
    state = initial_cusum_state(
        build_cusum_parameters(held.usual), len(CHARTED_FEATURES), held.seen.fourier_features.shape[1], STREAMS
    )
    age = np.zeros(STREAMS)
    found: list[int] = []
    for step in steps(held, case, rng):
        state.update(step)
        found += find_and_reset_alarms(state, held.calibration, case.asked, case.size, age).tolist()
    return found


def drawn(pool: Pool, case: Case, rng: np.random.Generator) -> Held:
    """A reference with as many pictures of each class, calibrated; the rest are for streams."""
    order = rng.permutation(len(pool))
    each = case.examples // CLASSES
    chosen = np.concatenate([order[pool.labels[order] == one][:each] for one in range(CLASSES)])
    rest = np.setdiff1d(np.arange(len(pool)), chosen)
    turn = fit_random_features(pool.features[chosen])
    reference, seen = pool.some(chosen).seen(turn, 1.0), pool.some(rest).seen(turn, 1.0)
    held = fit_class_statistics(reference, CLASSES)
    calibration = calibrate_thresholds(reference, pool.labels[chosen], CLASSES, seed=case.seed)
    members = [np.flatnonzero(pool.labels[rest] == one) for one in range(CLASSES)]
    fewest = min(map(len, members))
    table = np.stack([one[:fewest] for one in members])
    return Held(held, calibration, seen, held.scores(seen).astype(np.float32), table)


def steps(held: Held, case: Case, rng: np.random.Generator) -> Iterator[StepSums]:
    """Pictures of all streams, some at a time."""
    shown = rng.integers(0, CLASSES, STREAMS)
    for _ in range(case.pictures // STREAMS // case.size):
        labels = np.empty((STREAMS, case.size), np.int64)
        for place in range(case.size):
            ends = rng.random(STREAMS) < 1 / case.runs
            shown = np.where(ends, rng.integers(0, CLASSES, STREAMS), shown)
            labels[:, place] = shown
        yield summed(held, held.members[labels, rng.integers(0, held.members.shape[1], labels.shape)])


def summed(held: Held, places: NDArray[np.int64]) -> StepSums:
    """What they add up to."""
    called = held.seen.predicted_classes[places]
    counts = np.stack([(called == one).sum(1) for one in range(CLASSES)], 1).astype(float)
    ends = np.arange(len(places) + 1) * places.shape[1]
    hits = csr_array((np.ones(places.size, np.float32), places.ravel(), ends), (len(places), len(held.seen)))
    rest = np.asarray(hits @ held.seen.fourier_features, float) - counts @ held.usual.waves
    return StepSums(counts, np.asarray(hits @ held.scores, float), rest)
