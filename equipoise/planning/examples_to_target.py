"""Examples to the target over the global batch: a hyperbola through all seeds, and where it ends.

The learning rate is chosen batch by batch before. At very small batches the curve often turns up
again, because the rate was too large there or training fails; such batches are left out of the
fit and named.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm

from equipoise.planning.critical_batch import FAR, Floats, Runs, climbed, fit, hyperbola, resampled
from equipoise.planning.step_time_fit import COVERED

DRAWS = 100  # of the bootstrap
SURE = 4.0  # a critical batch whose interval spans more than this factor is not identified
LEAST_NOISE = 0.02  # between seeds, in log examples: no set of runs is trusted to be more alike
USUAL_NOISE = 0.15  # the same, where nothing was repeated: LeNet's runs to a target scatter by 0.1 to 0.2
LEANING = 4  # runs that the scatter of all settings counts as, beside a setting's own
TURN_UP = 0.1  # in log examples: how much more a smaller batch must need to count as turned up
CAUTION = 0.5  # standard errors by which a learning rate is counted as worse than its mean
FAILS = 0.5  # share of runs reaching the target below which a batch does not train


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Examples to the target over the global batch, and how far that can be trusted."""

    best: pd.DataFrame = field(repr=False)
    """the runs at the best learning rate of each batch"""
    means: pd.DataFrame
    """by batch: lr, log of the examples, its standard error, runs, share that reached the target; of the logs of those
    that did, the sum of squares about their mean and its degrees of freedom"""
    left_out: Sequence[float]
    """batches below the turn of the curve, or that do not train"""
    logs: tuple[float, float] | None
    """log E_min and log B_c; None with fewer than two batches to fit"""
    draws: Floats = field(repr=False)
    """the same, as each draw of the bootstrap has them: one row a draw"""
    noise: float
    """standard deviation between seeds, in log examples"""
    lack: float
    """how far the batches' means lie from the hyperbola beyond that noise, in log examples"""

    @property
    def critical_batch(self) -> tuple[float, float, float] | None:
        """B_c with its interval."""
        return self._spanned(1)

    @property
    def min_examples(self) -> tuple[float, float, float] | None:
        """E_min with its interval."""
        return self._spanned(0)

    @property
    def identifiable(self) -> bool:
        """Whether the critical batch is known to better than a factor, from batches that reach it."""
        found, fitted = self.critical_batch, self.means.index.drop(self.left_out)
        if found is None or len(fitted) < 3:
            return False
        return found[0] <= max(fitted) and found[2] <= SURE * found[1]

    def scatter(self, batch: float) -> tuple[float, float]:
        """Standard deviation of a single run, in log examples, and the degrees of freedom it is known with.

        A batch's own runs lean to those of all, and these, where few were repeated, to what is usual.
        """
        shared = leaning(self.noise, int((self.means.runs - 1).sum())) ** 2
        here = batch in self.means.index
        own, squares = (self._mean(name, batch) if here else 0.0 for name in ("own_free", "squares"))
        return float(np.sqrt((LEANING * shared + squares) / (LEANING + own))), LEANING - 1 + own

    def examples(self, batch: float) -> float | None:
        """Examples to the target at a global batch: measured and fitted, weighed by how sure each is."""
        drawn = self._logs(batch)
        return None if drawn is None else float(np.exp(drawn[0]))

    def sampled(self, batch: float) -> Floats | None:
        """The same as each draw of the bootstrap has it."""
        drawn = self._logs(batch)
        return None if drawn is None else np.exp(drawn[1])

    def lr(self, batch: float) -> float | None:
        """Learning rate at a global batch: the best one measured, or on the line between those in logs."""
        known = self.means.dropna(subset="lr")
        if known.empty:
            return None
        if batch in known.index:
            return self._mean("lr", batch)
        return float(np.exp(np.interp(np.log(batch), np.log(known.index.to_numpy(float)), np.log(known.lr))))

    def missing(self, batch: float) -> str | None:
        """Why the examples at a batch cannot be told; None if they can."""
        if batch in self.means.index and self._mean("reached", batch) < FAILS:
            return "a learning rate with which this batch reaches the target"
        if batch in self.means.index or self.logs is not None:
            return None
        return "runs at three global batches, the largest several times the smallest"

    def _mean(self, name: str, batch: float) -> float:
        return float(self.means[name].to_numpy(float)[self.means.index == batch][0])

    def _spanned(self, index: int) -> tuple[float, float, float] | None:
        if self.logs is None:
            return None
        low, high = np.quantile(self.draws[:, index], COVERED)
        return float(np.exp(self.logs[index])), float(np.exp(low)), float(np.exp(high))

    def _logs(self, batch: float) -> tuple[float, Floats] | None:
        """Log of the examples, and each draw's."""
        if self.missing(batch):
            return None
        noise = np.random.default_rng(int(batch)).standard_normal((2, DRAWS))
        here = batch in self.means.index
        mean, error = (self._mean(name, batch) if here else 0.0 for name in ("log_examples", "error"))
        measured = mean + error * noise[0]
        if here and (self.logs is None or batch in self.left_out):
            return mean, measured
        fit = float(hyperbola(np.array([batch]), *self.logs)[0])  # type: ignore[misc]  # missing saw to it
        fits = self.draws[:, 0] + np.log1p(batch / np.exp(self.draws[:, 1])) + self.lack * noise[1]
        if not here:
            return fit, fits
        weight = float(fits.var() / (fits.var() + error**2))
        return weight * mean + (1 - weight) * fit, weight * measured + (1 - weight) * fits


def fitted(runs: pd.DataFrame) -> Curve:
    """The curve that runs of global_batch, lr, seed, examples and reached tell of."""
    noise = between_seeds(by_setting(runs).values())
    best = at_best_lr(runs, noise)
    unsure = leaning(noise, len(best) - best.global_batch.nunique())
    means = summed_up(best, noise, unsure)
    left_out = turned_up(means)
    kept = Runs.of(best[~best.global_batch.isin(left_out)])
    known = means.drop(index=left_out)
    if len(known) < 2:
        return Curve(best=best, means=means, left_out=left_out, logs=None, draws=np.empty((0, 2)), noise=noise, lack=0)
    logs = fit(kept, noise)
    lack = beyond_noise(known, logs)
    drawn = [resampled(kept, unsure, lack, draw) for draw in range(DRAWS)]
    bounds = np.log(kept.batch.min()) - FAR, np.log(kept.batch.max()) + FAR
    starts = np.broadcast_to(np.array(logs), (DRAWS, 2))
    draws = climbed(Runs.stacked(drawn), noise, starts, bounds)
    return Curve(best=best, means=means, left_out=left_out, logs=logs, draws=draws, noise=noise, lack=lack)


def leaning(noise: float, free: int) -> float:
    """A standard deviation between seeds that is known with few degrees of freedom leans to what is usual."""
    return float(np.sqrt((USUAL_NOISE**2 + free * noise**2) / (1 + free)))


def beyond_noise(means: pd.DataFrame, logs: tuple[float, float]) -> float:
    """How far means lie from the hyperbola, in log examples, after what the noise of seeds explains."""
    off = means.log_examples - hyperbola(means.index.to_numpy(float), *logs)
    squares = float((off**2 - means.error**2).sum())
    return float(np.sqrt(max(squares, 0.0) / max(len(means) - 2, 1)))


class Seeds(NamedTuple):
    """The runs of one setting."""

    examples: Floats
    reached: NDArray[np.bool_]

    @classmethod
    def of(cls, runs: pd.DataFrame) -> "Seeds":
        """The runs of a table."""
        return cls(runs.examples.to_numpy(float), runs.reached.to_numpy() == 1)

    @property
    def logs(self) -> Floats:
        """Of the examples of those that reached the target."""
        return np.log(self.examples[self.reached])

    @property
    def squares(self) -> float:
        """Their sum of squares about their mean."""
        return float(self.logs.var() * len(self.logs)) if self.reached.any() else 0.0


def by_setting(runs: pd.DataFrame) -> dict[tuple[float, float], Seeds]:
    """The runs of each batch and learning rate."""
    keys = zip(runs.global_batch.tolist(), runs.lr.fillna(0.0).tolist(), strict=True)
    places: dict[tuple[float, float], list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        places[key].append(place)
    every = Seeds.of(runs)
    return {key: Seeds(every.examples[own], every.reached[own]) for key, own in places.items()}


def between_seeds(settings: Iterable[Seeds]) -> float:
    """Standard deviation of log examples between seeds of one setting, over all settings that reached the target."""
    told = [(one.squares, one.reached.sum() - 1) for one in settings if one.reached.any()]
    free = sum(freedom for _, freedom in told)
    return max(LEAST_NOISE, float(np.sqrt(sum(squares for squares, _ in told) / free)) if free else LEAST_NOISE)


def at_best_lr(runs: pd.DataFrame, noise: float) -> pd.DataFrame:
    """The runs of each batch at the learning rate that needs the fewest examples there.

    A rate that was tried less is trusted less: among many rates with one run each, the best is also the luckiest.
    """

    def cautious(here: pd.DataFrame) -> float:
        return expected(Seeds.of(here)) * float(np.exp(CAUTION * noise / np.sqrt(len(here))))

    chosen = []
    for _, here in runs.groupby("global_batch"):
        rates = [group for _, group in here.groupby(here.lr.fillna(0.0))]
        chosen.append(min(rates, key=lambda group: (cautious(group), mean_log(group, noise))))
    return pd.concat(chosen)


def expected(seeds: Seeds) -> float:
    """Examples until the target on average, where a run that was cut off is followed by another; infinite if all were.

    All examples spent over the runs that reached it (Hansen et al., "Real-parameter black-box optimization
    benchmarking", 2009).
    """
    reached = int(seeds.reached.sum())
    return float(seeds.examples.sum()) / reached if reached else np.inf


def mean_log(runs: pd.DataFrame, noise: float) -> float:
    """Most likely mean of log examples, runs that were cut off being above their cap; infinite if all were."""
    logs, reached = np.log(runs.examples.to_numpy(float)), runs.reached.to_numpy() == 1
    if not reached.any():
        return np.inf
    if reached.all():
        return float(logs.mean())

    def slope(mean: float) -> float:
        above = (logs[~reached] - mean) / noise
        hazard = np.exp(norm.logpdf(above) - norm.logsf(above))
        return float(((logs[reached] - mean) / noise).sum() + hazard.sum())

    return float(brentq(slope, logs.min() - noise, logs.max() + 10 * noise * len(logs)))


def summed_up(best: pd.DataFrame, noise: float, unsure: float) -> pd.DataFrame:
    """One row a batch; `unsure` is the noise as far as it is known."""
    rows = {}
    for batch, here in best.groupby("global_batch"):
        seeds = Seeds.of(here)
        reached = int(seeds.reached.sum())
        rows[batch] = {
            "lr": float(here.lr.iloc[0]),
            "log_examples": mean_log(here, noise),
            "error": unsure / np.sqrt(max(reached, 1)),
            "runs": len(here),
            "reached": reached / len(here),
            "squares": seeds.squares,
            "own_free": max(reached - 1, 0),
        }
    return pd.DataFrame.from_dict(rows, orient="index").sort_index()


def turned_up(means: pd.DataFrame) -> list[float]:
    """Batches that do not train, and the smallest ones that need more examples than a larger batch does."""
    fails = [batch for batch in means.index if means.reached[batch] < FAILS]
    trained = means.drop(index=fails)
    turned: list[float] = []
    for batch, following in pairwise(trained.index):
        rise = trained.log_examples[batch] - trained.log_examples[following]
        sure = 2 * np.hypot(trained.error[batch], trained.error[following])
        if rise <= max(TURN_UP, sure):
            break
        turned.append(batch)
    return fails + turned
