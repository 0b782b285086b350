"""Which trial next, and when a running one can no longer matter.

A policy without a state of its own: the same finished and running trials, with the same step times,
ask for the same next trial. It climbs in three stages:

1. a coarse ladder of global batches, each with its learning rate by the square-root rule;
2. at the batches that may still win, learning rates to both sides until the best is interior,
   and batches between the best and its neighbours;
3. further seeds for the best plan and its runner-up, until they are apart.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from equipoise.planning.examples_to_target import Seeds, between_seeds, by_setting, expected

OCTAVE = 2.0
STRIDE = 4.0  # between the batches of the first ladder
WORTH = 1.5  # a batch whose time may be within this factor of the best one is still looked at
HOPELESS = 2.5  # times the best setting's average after which a trial is ended: a good one may have an unlucky run
REACH = 4  # octaves to either side of the rule within which learning rates are looked for
GRID_REACH = 2  # the same, of the whole grid
SEEDS = 5  # of the best plan and its runner-up at least
MOST_SEEDS = 8
MOST_RATES = 6
RIVALS = 3  # settings beside the best that get further seeds
LEAST_NOISE = 0.05  # between seeds, in log examples
SHARED = 2  # runs that the noise of all settings counts as, beside a setting's own
APART = 2.0  # standard errors between the two best, beyond which more seeds change nothing

Bounds = tuple[float, float]
ANY: Bounds = (0.0, float("inf"))  # learning rates

StepTime = Callable[[int], float]
"""seconds of a step at a global batch, on the workers that are fastest there"""


class Ask(NamedTuple):
    """A trial to run."""

    global_batch: int
    lr: float
    seed: int


class Standing(NamedTuple):
    """What is known of one batch at one learning rate; infinitely slow if it never reached the target."""

    global_batch: int
    lr: float
    seconds: float
    """to the target"""
    error: float
    """of its log"""
    seeds: int


class Search:
    """The policy for one sweep."""

    reach = REACH
    """octaves to either side of the rule"""

    def __init__(self, batches: Sequence[int], lr: float, step: StepTime, bounds: Bounds = ANY) -> None:
        """`lr` is right at the smallest of `batches` to an octave or two; no rate outside `bounds` is tried."""
        self.batches = sorted(batches)
        self.bounds = bounds
        self.base = lr
        self.step = step
        self.noise: float | None = None  # the noise scale in examples, once a trial has told it

    def ask(self, finished: pd.DataFrame, running: Iterable[Ask] = (), lost: Iterable[Ask] = ()) -> Ask | None:
        """The next trial; None once the plan and its runner-up are apart. What is `lost` is not asked for again.

        While a trial runs that decides what comes next, a slot gets a spare one sooner than nothing: the
        process of a slot that waits may be ended, and takes seconds to start again.
        """
        busy = set(running)
        known = zip(*(finished[name].tolist() for name in ("global_batch", "lr", "seed")), strict=True)
        wanted = self._wanted(finished)
        spare = self._spare(finished) if self.undecided(finished, busy) else []
        asked: set[tuple[float, ...]] = {*busy, *known, *lost}
        return next((one for one in [*wanted, *spare] if one not in asked), None)

    def undecided(self, finished: pd.DataFrame, running: Iterable[Ask]) -> bool:
        """Whether a trial under way may still change what is asked for next."""
        return not set(running).isdisjoint(self._wanted(finished))

    def _wanted(self, finished: pd.DataFrame) -> list[Ask]:
        """In order of worth. What follows from the trials so far comes last, for slots that would wait for the rest."""
        first = [Ask(batch, self.rule(batch), 0) for batch in self.ladder()]
        if finished.empty:
            return first
        settings = self.settings(finished)
        standings = fastest_by_batch(settings)
        return [*first, *self._rates(finished, standings), *self._between(standings), *self._seeds(settings)]

    def _spare(self, finished: pd.DataFrame) -> list[Ask]:
        """Further seeds of the best settings, though they are known well enough to plan with."""
        best = [one for one in self.settings(finished)[:RIVALS] if np.isfinite(one.seconds)] if len(finished) else []
        return [Ask(one.global_batch, one.lr, seed) for seed in range(MOST_SEEDS) for one in best]

    def ladder(self) -> list[int]:
        """The first batches: from the smallest to the largest in wide strides, and the noise scale if it is known."""
        count = max(2, round(np.log(self.batches[-1] / self.batches[0]) / np.log(STRIDE)) + 1)
        marks = [*np.geomspace(self.batches[0], self.batches[-1], count), *([self.noise] if self.noise else [])]
        return sorted({nearest(self.batches, mark) for mark in marks})

    def rule(self, batch: int) -> float:
        """A first learning rate: it grows with the root of the batch."""
        return self.within(octave(self.base * np.sqrt(batch / self.batches[0])))

    def within(self, lr: float) -> float:
        """The rate that is allowed and nearest."""
        return min(max(lr, self.bounds[0]), self.bounds[1])

    def rates(self, batch: int) -> list[float]:
        """Learning rates about the rule, in octaves."""
        steps = range(-self.reach, self.reach + 1)
        return sorted({self.within(octave(self.rule(batch) * OCTAVE**k)) for k in steps})

    def _rates(self, finished: pd.DataFrame, standings: list[Standing]) -> list[Ask]:
        """Learning rates beside the best one, where it is at the edge and the batch may still win."""
        wanted = []
        best = standings[0]
        place = self.batches.index(best.global_batch)
        beside = self.batches[max(place - 1, 0) : place + 2]  # next to the best, a poor first rate decides nothing
        for one in standings:
            if one.global_batch not in beside and one.seconds > WORTH * OCTAVE * best.seconds < np.inf:
                continue
            tried = set(finished.lr[finished.global_batch == one.global_batch])
            sides = (octave(one.lr * OCTAVE), octave(one.lr / OCTAVE))
            if not np.isfinite(one.seconds):  # it blew up or starved: try both sides of all that was tried
                sides = (octave(min(tried) / OCTAVE), octave(max(tried) * OCTAVE))
            rates = self.rates(one.global_batch)
            if len(tried) < MOST_RATES:
                wanted += [Ask(one.global_batch, rate, 0) for rate in sides if rates[0] <= rate <= rates[-1]]
        return wanted

    def _between(self, standings: list[Standing]) -> list[Ask]:
        """Batches beside the best one, its neighbours on the ladder, with the rate that the best suggests."""
        best = standings[0]
        place = self.batches.index(best.global_batch)
        beside = [self.batches[i] for i in (place + 1, place - 1) if 0 <= i < len(self.batches)]
        tried = {one.global_batch for one in standings}
        rate = {b: self.within(octave(best.lr * np.sqrt(b / best.global_batch))) for b in beside}
        return [Ask(b, rate[b], 0) for b in beside if b not in tried]

    def _seeds(self, settings: list[Standing]) -> list[Ask]:
        """Further seeds for those that may be the best: settings, not batches, since a lucky rate may be a poor one."""
        best = settings[0]
        rivals = [one for one in settings[1:] if not apart(best, one)][:RIVALS]
        if not rivals and best.seeds >= SEEDS:
            return []
        fewest = sorted([best, *rivals], key=lambda one: (one.seeds, one.seconds))
        due = [Ask(one.global_batch, one.lr, one.seeds) for one in fewest if one.seeds < MOST_SEEDS]
        return due + [Ask(one.global_batch, one.lr, seed) for one in fewest for seed in range(one.seeds + 1, SEEDS)]

    def settings(self, finished: pd.DataFrame) -> list[Standing]:
        """Every batch with every learning rate tried, the fastest first."""
        settings = by_setting(finished)
        noise = max(between_seeds(settings.values()), LEAST_NOISE)
        found = []
        for (batch, lr), seeds in settings.items():
            seconds = expected(seeds) / batch * self.step(int(batch))
            found.append(Standing(int(batch), lr, seconds, error(seeds, noise), len(seeds.examples)))
        return sorted(found, key=lambda one: (one.seconds, one.global_batch, one.lr))


class Grid(Search):
    """Every batch with five learning rates and every seed: what a policy is judged by."""

    reach = GRID_REACH

    def __init__(self, batches: Sequence[int], lr: float, step: StepTime, seeds: int, bounds: Bounds = ANY) -> None:
        super().__init__(batches, lr, step, bounds)
        rates = {batch: self.rates(batch) for batch in self.batches}
        self.all = [Ask(batch, lr, seed) for seed in range(seeds) for batch in self.batches for lr in rates[batch]]

    def _wanted(self, finished: pd.DataFrame) -> list[Ask]:
        return self.all

    def _spare(self, finished: pd.DataFrame) -> list[Ask]:
        return []


def fastest_by_batch(settings: list[Standing]) -> list[Standing]:
    """Each batch tried, at the best of its rates, the fastest first."""
    best: dict[int, Standing] = {}
    for one in settings:
        best.setdefault(one.global_batch, one)
    return list(best.values())


def hopeless(seconds: float, best: float) -> bool:
    """Whether a running trial that has taken `seconds` so far is already much slower than the best setting."""
    return seconds > HOPELESS * best


def error(seeds: Seeds, noise: float) -> float:
    """Standard error of the log of the expected examples of one setting.

    `noise` is what settings have between seeds in common; one with a scatter of its own, or runs that
    fail, is known less well.
    """
    runs, reached = len(seeds.examples), int(seeds.reached.sum())
    if not reached:
        return np.inf
    own = (SHARED * noise**2 + seeds.squares) / (SHARED + reached - 1)
    return float(np.sqrt(own / runs + (1 - reached / runs) / reached))


def apart(first: Standing, second: Standing) -> bool:
    """Whether the second is slower beyond what chance between seeds makes."""
    if not np.isfinite(second.seconds):
        return True
    return float(np.log(second.seconds / first.seconds)) > APART * float(np.hypot(first.error, second.error))


def octave(lr: float) -> float:
    """The nearest half octave: rates that are asked for twice are the same number."""
    return float(f"{2 ** (round(2 * np.log2(lr)) / 2):.6g}")


def nearest(batches: Sequence[int], mark: float) -> int:
    """The batch closest to a mark, by ratio."""
    return min(batches, key=lambda batch: abs(np.log(batch / mark)))
