"""A reference, as each picture is held against it: what is usual for pictures that are called the same.

Whoever looks at one product for a minute sends many pictures of one class. Each figure is therefore compared with
those of its own predicted class: what is left depends on light and camera, not on what is shown.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.sums import Layout, Sums
from equipoise.drift.features import confidence
from equipoise.drift.features import image_stats as statistics
from equipoise.drift.features.random_fourier import Waves

Array = NDArray[Any]

FEWEST = 100  # pictures of a reference from which anything can be told
MOST_SCORE = 4.0  # standard deviations: one odd picture alone is no drift
LEAST_SCALE = 0.01  # of a figure that is always the same in the reference
LEAN = 5.0  # pictures that the whole reference counts for in what is usual for one class
FIGURES = (*statistics.NAMES, *confidence.NAMES, "distance", "strange")
"""what is charted of each picture; the last two are how far its features are from those of its class, and whether that
is hardly ever seen: something the model never met"""
STRANGE = 3.0  # standard deviations of the distance
WIDER = 3.0  # standard errors by which bets allow for the reference's own scatter


@dataclass(frozen=True, eq=False)
class Seen:
    """What there is to say of a few pictures: a row each."""

    figures: NDArray[np.float32]
    """(n, FIGURES without the last two)"""
    classes: NDArray[np.int64]
    """what they were called"""
    waves: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.classes)

    def some(self, places: list[int]) -> "Seen":
        """A few of them."""
        return Seen(self.figures[places], self.classes[places], self.waves[places])


@dataclass(frozen=True, eq=False)
class Usual:
    """By predicted class, what figures and features are like in a reference."""

    counts: NDArray[np.float64]
    """(classes,) pictures"""
    mean: NDArray[np.float64]
    """(classes, FIGURES)"""
    scale: NDArray[np.float64]
    waves: NDArray[np.float64]
    """(classes, waves): means"""
    trace: NDArray[np.float64]
    """(classes,) mean square of what is left of the waves without the mean"""

    def scores(self, seen: Seen) -> NDArray[np.float64]:
        """Standard deviations from what is usual, within reason."""
        return np.clip(self.shifts(seen) / self.scale[seen.classes], -MOST_SCORE, MOST_SCORE)

    def shifts(self, seen: Seen) -> NDArray[np.float64]:
        """Differences from what is usual, in their own units."""
        return np.concatenate([seen.figures, self.distances(seen)], 1) - self.mean[seen.classes]

    def distances(self, seen: Seen) -> NDArray[np.float64]:
        """(n, 2): squared distances of features from the mean of their class, and whether they are strange."""
        found = distances(seen, self.waves)
        place = FIGURES.index("distance")
        score = (found - self.mean[seen.classes, place]) / self.scale[seen.classes, place]
        return np.stack([found, score > STRANGE], 1)


def distances(seen: Seen, waves: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared distances of features, whose length is 1, from the mean of their class."""
    mean = waves[seen.classes]
    return np.asarray(1 - 2 * (seen.waves * mean).sum(1) + (mean**2).sum(1))


def usual(seen: Seen, classes: int) -> Usual:
    """Of a reference. A class with few pictures leans on all of them."""
    member = np.zeros((classes, len(seen)))
    member[seen.classes, np.arange(len(seen))] = 1
    waves = leaning(member, seen.waves.astype(np.float64))
    rest = seen.waves - waves[seen.classes]
    trace = leaning(member, (rest**2).sum(1)[:, None])[:, 0]
    distance = distances(seen, waves)[:, None]
    mean, scale = moments(member, seen.classes, np.concatenate([seen.figures, distance], 1))
    strange = (distance - mean[seen.classes, -1:]) / scale[seen.classes, -1:] > STRANGE
    other_mean, other_scale = moments(member, seen.classes, strange.astype(np.float64))
    mean, scale = np.concatenate([mean, other_mean], 1), np.concatenate([scale, other_scale], 1)
    return Usual(member.sum(1), mean, scale, waves, trace)


def moments(member: NDArray[np.float64], classes: NDArray[np.int64], values: Array) -> tuple[Any, Any]:
    """Means and standard deviations by class."""
    values = values.astype(np.float64)
    mean = leaning(member, values)
    return mean, np.maximum(np.sqrt(leaning(member, (values - mean[classes]) ** 2)), LEAST_SCALE)


def leaning(member: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means by class, which lean on the mean of all."""
    sums, counts = member @ values, member.sum(1)[:, None]
    return np.asarray((sums + LEAN * values.mean(0)) / (counts + LEAN))


@dataclass(frozen=True, eq=False)
class Baseline:
    """A bundle's reference, ready for pictures to be held against it."""

    temperature: float
    waves: Waves
    usual: Usual
    layout: Layout
    ranked: NDArray[np.float32]
    """(FIGURES, reference): scores of the reference, each figure's in order"""
    wider: float
    """of a rank: how far the reference's own scatter may move its mean"""

    def seen(self, pictures: NDArray[np.uint8], logits: Array, features: Array) -> Seen:
        """What there is to say of pictures that the model has answered."""
        sure = confidence.confidence(logits, self.temperature)
        figures = np.concatenate([statistics.statistics(pictures), sure], 1)
        return Seen(figures, logits.argmax(1), self.waves(features))

    def sums(self, seen: Seen) -> Sums:
        """What a replica adds for them."""
        shifts = self.usual.shifts(seen)
        scores = np.clip(shifts / self.usual.scale[seen.classes], -MOST_SCORE, MOST_SCORE)
        low, high = self.bets(scores)
        return self.layout.packed(
            all=np.array([len(seen)]),
            classes=np.bincount(seen.classes, minlength=self.layout.classes),
            scores=scores,
            shifts=shifts,
            low=low,
            high=high,
            waves=seen.waves,
        )

    def bets(self, scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The logarithms of what bets on low and on high ranks bring."""
        rank = self.ranks(scores) - 0.5
        rank[:, FIGURES.index("strange")] = 0  # a yes or no: its rank would tell the class, and runs of one win bets
        return np.log1p(-rank - self.wider), np.log1p(rank - self.wider)

    def ranks(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Which share of the reference scores less; the same counts by half."""
        columns = zip(self.ranked, scores.T.astype(np.float32), strict=True)
        sides = [line.searchsorted(one, "left") + line.searchsorted(one, "right") for line, one in columns]
        return np.asarray(np.stack(sides, 1) / (2 * self.ranked.shape[1]))


def baseline(seen: Seen, classes: int, made: Waves, temperature: float) -> Baseline:
    """Of a reference's pictures."""
    if len(seen) < FEWEST:
        raise ValueError(f"the reference has {len(seen)} pictures: {FEWEST} are needed to tell drift from chance")
    found = usual(seen, classes)
    ranked = np.sort(found.scores(seen).astype(np.float32), 0).T
    fewest = max(found.counts[found.counts > 0].min(), LEAN)
    layout = Layout(classes, len(FIGURES), seen.waves.shape[1])
    return Baseline(temperature, made, found, layout, np.ascontiguousarray(ranked), wider(fewest))


def wider(fewest: float) -> float:
    """How far the mean rank of one class may be from a half because so few were looked at: ranks are uniform."""
    return float(min(WIDER * np.sqrt(1 / 12 / fewest), 0.45))
