"""Thresholds for an asked average run length: how many clean pictures there are, on average, to a false alarm.

Streams are drawn from the reference by the thousand, each held against a reference drawn anew, so that thresholds know
how uncertain the reference itself is. The largest values of stretches of a stream fall off exponentially; a line
through their tail says how high a chart must be for any run length, however long, and no stream has to be that long.
First each chart alone is brought to one scale, the logarithm of its own run length; then the largest of all, together.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from equipoise.drift.charts.baseline import Seen, Usual, usual
from equipoise.drift.charts.cusum import Step, charts, rules

Array = NDArray[Any]

SIZES = (16.0, 64.0, 256.0)  # pictures a step, for which thresholds are found; in between by the logarithm
RUNS = (1.0, 4.0, 20.0, 100.0)  # pictures of one class in a row, on average; the same
STREAMS = 256
REFERENCES = 32  # drawn anew, each for some of the streams
STRETCH = 1024  # pictures of which the largest value counts
STRETCHES = 4  # of each stream
TAIL = 0.3  # the share of largest values through which the line is drawn


@dataclass(frozen=True, eq=False)
class Calibration:
    """How high charts go without drift, by the size of steps and the length of runs."""

    offset: Array
    """(sizes, runs, charts): with `slope`, a chart's value as the logarithm of its run length alone"""
    slope: Array
    joint_offset: Array
    """(sizes, runs, 1): the same for the largest of all charts"""
    joint_slope: Array

    def scaled(self, values: Array, size: Array, runs: Array) -> Array:
        """(streams, charts) as logarithms of run lengths, for steps and runs of so many pictures (streams,)."""
        offset, slope = (between(table, size, runs) for table in (self.offset, self.slope))
        return np.asarray(offset + slope * values)

    def threshold(self, run_length: float, size: Array, runs: Array) -> Array:
        """(streams,) what the largest scaled value must reach so that a false alarm comes once in `run_length`."""
        offset, slope = (between(table, size, runs)[:, 0] for table in (self.joint_offset, self.joint_slope))
        return np.asarray((np.log(run_length) - offset) / slope)

    def heights(self, run_length: float, size: Array, runs: Array) -> Array:
        """(streams, charts) the same for each chart's value as it comes."""
        offset, slope = (between(table, size, runs) for table in (self.offset, self.slope))
        return np.asarray((self.threshold(run_length, size, runs)[:, None] - offset) / slope)


def between(table: Array, size: Array, runs: Array) -> Array:
    """A table's rows (by SIZES and RUNS) in between, by logarithms; beyond its ends, its ends."""
    (a, row), (b, column) = nearest(size, SIZES), nearest(runs, RUNS)
    a, b = a[:, None], b[:, None]
    upper = table[row, column] * (1 - b) + table[row, column + 1] * b
    lower = table[row + 1, column] * (1 - b) + table[row + 1, column + 1] * b
    return np.asarray(upper * (1 - a) + lower * a)


def nearest(values: Array, ends: tuple[float, ...]) -> tuple[Array, NDArray[np.int64]]:
    """For each value, the last end before it and the share of the way to the next."""
    place = np.interp(np.log(values), np.log(ends), np.arange(len(ends)))
    low = np.minimum(place.astype(np.int64), len(ends) - 2)
    return place - low, low


def calibrated(seen: Seen, labels: NDArray[np.int64], classes: int, seed: int = 0) -> Calibration:
    """For a reference and what its pictures really show."""
    held = usual(seen, classes)
    paths = [[path(seen, labels, held, int(size), length, seed) for length in RUNS] for size in SIZES]
    alone = [[tail(stretched(one.values)) for one in row] for row in paths]
    offset, slope = (np.array([[one[part] for one in row] for row in alone]) for part in (0, 1))
    found = Calibration(offset, slope, np.zeros((*offset.shape[:2], 1)), np.ones((*offset.shape[:2], 1)))
    joint = [[tail(stretched(one.largest(found))) for one in row] for row in paths]
    return replace(
        found,
        joint_offset=np.array([[one[0] for one in row] for row in joint]),
        joint_slope=np.array([[one[1] for one in row] for row in joint]),
    )


@dataclass(frozen=True, eq=False)
class Path:
    """How charts went over streams without drift."""

    size: int
    values: NDArray[np.float32]
    """(steps, streams, charts)"""
    runs: NDArray[np.float32]
    """(steps, streams): how long they were taken to be"""

    def largest(self, found: Calibration) -> NDArray[np.float32]:
        """(steps, streams, 1): the largest scaled value."""
        size = np.full(self.runs.shape[1], float(self.size))
        steps = zip(self.values, self.runs, strict=True)
        return np.stack([found.scaled(value, size, runs).max(1, keepdims=True) for value, runs in steps])


def path(seen: Seen, labels: NDArray[np.int64], held: Usual, size: int, length: float, seed: int) -> Path:
    """Some streams with steps of one size and runs of one length."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    streams = Streams.drawn(seen, labels, held, length, rng)
    state = charts(rules(held, streams.counts, streams.trace), streams.scores.shape[1], seen.waves.shape[1], STREAMS)
    values, runs = [], []
    for _ in range(STRETCH * STRETCHES // size):
        state.step(streams.step(size, rng))
        values.append(state.values().astype(np.float32))
        runs.append(state.runs.length().astype(np.float32))
    return Path(size, np.stack(values), np.stack(runs))


def stretched(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """(stretches, charts): the largest values of each."""
    steps, streams, count = values.shape
    return np.asarray(values.reshape(STRETCHES, steps // STRETCHES, streams, count).max(1).reshape(-1, count))


def tail(largest: Array) -> tuple[Array, Array]:
    """Offset and slope of log run lengths over values, from the largest values (stretches, charts) of stretches."""
    start = np.quantile(largest, 1 - TAIL, axis=0)
    above = np.where(largest > start, largest - start, 0).sum(0) / np.maximum((largest > start).sum(0), 1)
    slope = 1 / np.where(above > 0, above, 1.0)
    return np.log(STRETCH / -np.log1p(-TAIL)) - slope * start, slope


@dataclass(frozen=True, eq=False)
class Streams:
    """Pictures of the reference in any number, each stream held against a reference drawn anew."""

    labels: NDArray[np.int64]
    """what pictures show: runs are of that, and a model errs in its own way on each class"""
    classes: NDArray[np.int64]
    """what they were called"""
    waves: NDArray[np.float32]
    scores: NDArray[np.float32]
    """(references x pictures, figures)"""
    usual_waves: NDArray[np.float32]
    """(references, classes, waves)"""
    counts: NDArray[np.float64]
    """(streams, classes): the pictures of each class that the reference has, as chance might have had it"""
    trace: NDArray[np.float64]
    """(streams, classes)"""
    owner: NDArray[np.int64]
    """(streams,) which reference each is held against"""
    length: float
    """pictures of one class in a row, on average"""
    latest: NDArray[np.int64]
    """(streams,) the last picture of each"""

    @classmethod
    def drawn(
        cls, seen: Seen, labels: NDArray[np.int64], held: Usual, length: float, rng: np.random.Generator
    ) -> "Streams":
        """As many pictures of each class as there are, drawn with repetition."""
        others = [usual(again(seen, rng), len(held.counts)) for _ in range(REFERENCES)]
        counts = rng.multinomial(len(seen), held.counts / len(seen), REFERENCES).astype(np.float64)
        return cls.against(others, counts, seen, labels, length, rng)

    @classmethod
    def against(
        cls,
        references: list[Usual],
        counts: Array,
        seen: Seen,
        labels: NDArray[np.int64],
        length: float,
        rng: np.random.Generator,
    ) -> "Streams":
        """Of some pictures, each stream held against one of several references, of so many pictures by class."""
        scores = np.concatenate([one.scores(seen) for one in references]).astype(np.float32)
        means = np.stack([one.waves for one in references]).astype(np.float32)
        owner = np.arange(STREAMS) % len(references)
        latest = rng.integers(0, len(seen), STREAMS)
        trace = np.stack([one.trace for one in references])
        return cls(labels, seen.classes, seen.waves, scores, means, counts[owner], trace[owner], owner, length, latest)

    def step(self, size: int, rng: np.random.Generator) -> Step:
        """Some more pictures of each stream."""
        count, classes = len(self.classes), self.usual_waves.shape[1]
        places = self.places(size, rng)
        rows = np.arange(STREAMS)[:, None]
        counts = np.bincount((rows * classes + self.classes[places]).ravel(), minlength=STREAMS * classes)
        counts = counts.reshape(STREAMS, classes).astype(np.float64)
        usual_rest = np.einsum("sc,scw->sw", counts, self.usual_waves[self.owner])
        scores = added(places + self.owner[:, None] * count, self.scores)
        return Step(counts, scores, added(places, self.waves) - usual_rest)

    def places(self, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """(streams, size) pictures: where a run goes on, another of the class before."""
        places = np.concatenate([self.latest[:, None], rng.integers(0, len(self.classes), (STREAMS, size))], 1)
        begins = rng.random(places.shape) < 1 / self.length
        begins[:, 0] = True
        since = np.maximum.accumulate(np.where(begins, np.arange(size + 1), 0), 1)
        leader = np.take_along_axis(places, since, 1)
        members, firsts, counts = grouped(self.labels)
        shown = self.labels[leader]
        drawn = members[firsts[shown] + (rng.random(places.shape) * counts[shown]).astype(np.int64)]
        self.latest[:] = drawn[:, -1]
        return np.asarray(drawn[:, 1:])


def grouped(classes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Pictures class by class, where each class begins, and how many it has."""
    counts = np.bincount(classes)
    return np.argsort(classes, kind="stable"), np.cumsum(counts) - counts, counts


def added(places: NDArray[np.int64], table: NDArray[np.float32]) -> Array:
    """For each row of places, the sum of those rows of a table."""
    ends = np.arange(len(places) + 1) * places.shape[1]
    hits = csr_array((np.ones(places.size, np.float32), places.ravel(), ends), (len(places), len(table)))
    return np.asarray(hits @ table, np.float64)


def again(seen: Seen, rng: np.random.Generator) -> Seen:
    """As many pictures of each class, drawn from them with repetition."""
    members, firsts, counts = grouped(seen.classes)
    classes = np.repeat(np.arange(len(counts)), counts)
    places = members[firsts[classes] + (rng.random(len(members)) * counts[classes]).astype(np.int64)]
    return Seen(seen.figures[places], seen.classes[places], seen.waves[places])
