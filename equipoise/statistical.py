"""Examples to the target over the global batch: a hyperbola through all seeds, and where it ends.

    E(B) = E_min * (1 + B / B_c)

E_min are the examples that infinitely many small steps need, B_c is the critical batch: there
half of every example is wasted (McCandlish et al., 2018). Runs cut off at their cap are
known to need more than the cap, and are counted as that. The learning rate is chosen batch
by batch before. At very small batches the curve often turns up again, because the rate was too
large there or training fails; such batches are left out of the fit and named.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr
from scipy.stats import norm

from equipoise.system import COVERED

Floats = NDArray[np.float64]

DRAWS = 100  # of the bootstrap
SURE = 4.0  # a critical batch whose interval spans more than this factor is not identified
LEAST_NOISE = 0.02  # between seeds, in log examples: no set of runs is trusted to be more alike
USUAL_NOISE = 0.15  # the same, where nothing was repeated: LeNet's runs to a target scatter by 0.1 to 0.2
TURN_UP = 0.1  # in log examples: how much more a smaller batch must need to count as turned up
FAR = 5.0  # natural logs beyond the batches measured in which the critical batch is looked for
STEPS, RIDGE = 50, 1e-9  # of Gauss and Newton, and what keeps them finite where the curve is flat
CAUTION = 0.5  # standard errors by which a learning rate is counted as worse than its mean
FAILS = 0.5  # share of runs reaching the target below which a batch does not train


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Examples to the target over the global batch, and how far that can be trusted."""

    best: pd.DataFrame = field(repr=False)
    """the runs at the best learning rate of each batch"""
    means: pd.DataFrame
    """by batch: lr, log of the examples, its standard error, runs, share that reached the target"""
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

    @property
    def scatter(self) -> float:
        """Standard deviation of a single run, in log examples: with few seeds, leaning to what is usual."""
        free = float((self.means.runs - 1).sum())
        return float(np.sqrt((USUAL_NOISE**2 + free * self.noise**2) / (1 + free)))

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


def hyperbola(batch: Floats, log_least: Floats | float, log_critical: Floats | float) -> Floats:
    """Log of the examples to the target."""
    return np.asarray(log_least + np.log1p(batch / np.exp(log_critical)))


def fitted(runs: pd.DataFrame) -> Curve:
    """The curve that runs of global_batch, lr, seed, examples and reached tell of."""
    noise = between_seeds(runs)
    best = at_best_lr(runs, noise)
    means = summed_up(best, noise)
    left_out = turned_up(means)
    kept = Runs.of(best[~best.global_batch.isin(left_out)])
    known = means.drop(index=left_out)
    if len(known) < 2:
        return Curve(best=best, means=means, left_out=left_out, logs=None, draws=np.empty((0, 2)), noise=noise, lack=0)
    logs = fit(kept, noise)
    lack = beyond_noise(known, logs)
    drawn = [resampled(kept, noise, lack, draw) for draw in range(DRAWS)]
    bounds = np.log(kept.batch.min()) - FAR, np.log(kept.batch.max()) + FAR
    starts = np.broadcast_to(np.array(logs), (DRAWS, 2))
    draws = climbed(Runs.stacked(drawn), noise, starts, bounds)
    return Curve(best=best, means=means, left_out=left_out, logs=logs, draws=draws, noise=noise, lack=lack)


def beyond_noise(means: pd.DataFrame, logs: tuple[float, float]) -> float:
    """How far means lie from the hyperbola, in log examples, after what the noise of seeds explains."""
    off = means.log_examples - hyperbola(means.index.to_numpy(float), *logs)
    squares = float((off**2 - means.error**2).sum())
    return float(np.sqrt(max(squares, 0.0) / max(len(means) - 2, 1)))


def between_seeds(runs: pd.DataFrame) -> float:
    """Standard deviation of log examples between seeds of one setting, over all settings that reached the target."""
    reached = runs[runs.reached == 1]
    logs = np.log(reached.examples).groupby([reached.global_batch, reached.lr.fillna(0.0)])
    free = (logs.size() - 1).sum()
    squares = (logs.var().fillna(0.0) * (logs.size() - 1)).sum()
    return max(LEAST_NOISE, float(np.sqrt(squares / free)) if free > 0 else LEAST_NOISE)


def at_best_lr(runs: pd.DataFrame, noise: float) -> pd.DataFrame:
    """The runs of each batch at the learning rate that needs the fewest examples there.

    A rate that was tried less is trusted less: among many rates with one run each, the best is also the luckiest.
    """

    def cautious(here: pd.DataFrame) -> float:
        return expected(here) * float(np.exp(CAUTION * noise / np.sqrt(len(here))))

    chosen = []
    for _, here in runs.groupby("global_batch"):
        rates = [group for _, group in here.groupby(here.lr.fillna(0.0))]
        chosen.append(min(rates, key=lambda group: (cautious(group), mean_log(group, noise))))
    return pd.concat(chosen)


def expected(runs: pd.DataFrame) -> float:
    """Examples until the target on average, where a run that was cut off is followed by another; infinite if all were.

    All examples spent over the runs that reached it (Hansen et al., "Real-parameter black-box optimization
    benchmarking", 2009).
    """
    reached = int((runs.reached == 1).sum())
    return float(runs.examples.sum()) / reached if reached else np.inf


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


def summed_up(best: pd.DataFrame, noise: float) -> pd.DataFrame:
    """One row a batch."""
    rows = {
        batch: {
            "lr": float(here.lr.iloc[0]),
            "log_examples": mean_log(here, noise),
            "error": noise / np.sqrt(max((here.reached == 1).sum(), 1)),
            "runs": len(here),
            "reached": float((here.reached == 1).mean()),
        }
        for batch, here in best.groupby("global_batch")
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


class Runs(NamedTuple):
    """Runs as arrays, ordered by batch; the last axis is of runs, others are of draws."""

    batch: Floats
    logs: Floats
    """of the examples"""
    reached: NDArray[np.bool_]

    @classmethod
    def of(cls, table: pd.DataFrame) -> "Runs":
        """The runs of a table."""
        table = table.sort_values("global_batch")
        logs = np.log(table.examples.to_numpy(float))
        return cls(table.global_batch.to_numpy(float), logs, table.reached.to_numpy() == 1)

    @classmethod
    def stacked(cls, draws: Sequence["Runs"]) -> "Runs":
        """Draws of the same runs, one a row."""
        batch, logs, reached = zip(*draws, strict=True)
        return cls(np.stack(batch), np.stack(logs), np.stack(reached))


def fit(runs: Runs, noise: float) -> tuple[float, float]:
    """log E_min and log B_c with the greatest robust likelihood."""
    low, high = np.log(runs.batch.min()) - FAR, np.log(runs.batch.max()) + FAR
    starts = np.array([(runs.logs.min(), middle) for middle in np.linspace(low + 2, high - 2, 6)])
    copies = Runs.stacked([runs] * len(starts))
    found = climbed(copies, noise, starts, (low, high))
    least, critical = found[np.argmin(cost(copies, noise, found))]
    return float(least), float(critical)


def climbed(runs: Runs, noise: float, points: Floats, bounds: tuple[float, float]) -> Floats:
    """Where Gauss-Newton's steps lead from each point, for each draw of runs; log B_c stays within bounds.

    Weights make the loss soft-L1; a run that was cut off counts as what it needs on average,
    given that this is above its cap (expectation maximisation).
    """
    for _ in range(STEPS):
        shape = runs.batch / np.exp(points[:, 1:])
        mean = points[:, :1] + np.log1p(shape)
        above = (runs.logs - mean) / noise
        hazard = np.exp(norm.logpdf(above) - log_ndtr(-above))
        off = np.where(runs.reached, runs.logs - mean, noise * hazard)
        weight = 1 / np.sqrt(1 + (off / noise) ** 2)
        slope = -shape / (1 + shape)  # of the mean along log B_c; along log E_min it is 1
        s0, s1, s2 = weight.sum(1), (weight * slope).sum(1), (weight * slope**2).sum(1) + RIDGE
        r0, r1 = (weight * off).sum(1), (weight * slope * off).sum(1)
        along = np.clip((s0 * r1 - s1 * r0) / (s0 * s2 - s1**2), -1, 1)
        critical = np.clip(points[:, 1] + along, *bounds)
        least = points[:, 0] + (r0 - s1 * (critical - points[:, 1])) / s0
        points = np.stack([least, critical], 1)
    return points


def cost(runs: Runs, noise: float, points: Floats) -> Floats:
    """Twice the negative log likelihood, soft-L1 for runs that reached the target."""
    off = (runs.logs - hyperbola(runs.batch, points[:, :1], points[:, 1:])) / noise
    each = np.where(runs.reached, 2 * (np.sqrt(1 + off**2) - 1), -2 * log_ndtr(-off))
    return np.asarray(each.sum(1))


def resampled(runs: Runs, noise: float, lack: float, draw: int) -> Runs:
    """Runs as they might have come out.

    Those of a batch are drawn anew, or moved by the noise where they are fewer than three; then the
    batch is moved as a whole by what the hyperbola lacks.
    """
    rng = np.random.default_rng(draw)
    starts = np.flatnonzero(np.diff(runs.batch, prepend=-1.0))
    picked, moved = [], []
    for first, last in zip(starts, [*starts[1:], len(runs.batch)], strict=True):
        few = last - first < 3
        picked.append(np.arange(first, last) if few else rng.integers(first, last, last - first))
        moved.append(lack * rng.standard_normal() + few * noise * rng.standard_normal(last - first))
    chosen = np.concatenate(picked)
    reached = runs.reached[chosen]
    return Runs(runs.batch[chosen], runs.logs[chosen] + np.concatenate(moved) * reached, reached)
