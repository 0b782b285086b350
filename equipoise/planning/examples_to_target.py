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

from equipoise.planning.critical_batch import (
    SEARCH_MARGIN_LOGS,
    RunArrays,
    bootstrap_runs,
    fit_hyperbola,
    gauss_newton,
    log_examples,
)
from equipoise.planning.step_time_fit import INTERVAL_QUANTILES
from equipoise.type_aliases import FloatArray

CURVE_BOOTSTRAP_DRAWS = 100  # of the bootstrap
MAX_INTERVAL_RATIO = 4.0  # a critical batch whose interval spans more than this factor is not identified
MIN_SEED_NOISE = 0.02  # between seeds, in log examples: no set of runs is trusted to be more alike
PRIOR_SEED_NOISE = 0.15  # the same, where nothing was repeated: LeNet's runs to a target scatter by 0.1 to 0.2
POOLED_SCATTER_RUNS = 4  # runs that the scatter of all settings counts as, beside a setting's own
MIN_LOG_RISE = 0.1  # in log examples: how much more a smaller batch must need to count as turned up
LCB_STANDARD_ERRORS = 0.5  # standard errors by which a learning rate is counted as worse than its mean
MIN_SUCCESS_RATE = 0.5  # share of runs reaching the target below which a batch does not train


@dataclass(frozen=True, kw_only=True)
class ExamplesCurve:
    """Examples to the target over the global batch, and how far that can be trusted."""

    best_lr_runs: pd.DataFrame = field(repr=False)
    """the runs at the best learning rate of each batch"""
    batch_summary: pd.DataFrame
    """by batch: lr, log of the examples, its standard error, runs, share that reached the target; of the logs of those
    that did, the sum of squares about their mean and its degrees of freedom"""
    left_out_batches: Sequence[float]
    """batches below the turn of the curve, or that do not train"""
    log_parameters: tuple[float, float] | None
    """log E_min and log B_c; None with fewer than two batches to fit"""
    log_parameter_draws: FloatArray = field(repr=False)
    """the same, as each draw of the bootstrap has them: one row a draw"""
    seed_noise: float
    """standard deviation between seeds, in log examples"""
    lack_of_fit_sd: float
    """how far the batches' means lie from the hyperbola beyond that noise, in log examples"""

    @property
    def critical_batch(self) -> tuple[float, float, float] | None:
        """B_c with its interval."""
        return self._with_interval(1)

    @property
    def min_examples(self) -> tuple[float, float, float] | None:
        """E_min with its interval."""
        return self._with_interval(0)

    @property
    def identifiable(self) -> bool:
        """Whether the critical batch is known to better than a factor, from batches that reach it."""
        found, fitted = self.critical_batch, self.batch_summary.index.drop(self.left_out_batches)
        if found is None or len(fitted) < 3:
            return False
        return found[0] <= max(fitted) and found[2] <= MAX_INTERVAL_RATIO * found[1]

    def seed_noise_at(self, batch: float) -> tuple[float, float]:
        """Standard deviation of a single run, in log examples, and the degrees of freedom it is known with.

        A batch's own runs lean to those of all, and these, where few were repeated, to what is usual.
        """
        shared = shrink_seed_noise(self.seed_noise, int((self.batch_summary.runs - 1).sum())) ** 2
        here = batch in self.batch_summary.index
        own, squares = (self._summary_value(name, batch) if here else 0.0 for name in ("own_free", "squares"))
        return float(
            np.sqrt((POOLED_SCATTER_RUNS * shared + squares) / (POOLED_SCATTER_RUNS + own))
        ), POOLED_SCATTER_RUNS - 1 + own

    def examples_at(self, batch: float) -> float | None:
        """Examples to the target at a global batch: measured and fitted, weighed by how sure each is."""
        drawn = self._log_examples_with_draws(batch)
        return None if drawn is None else float(np.exp(drawn[0]))

    def sample_examples(self, batch: float) -> FloatArray | None:
        """The same as each draw of the bootstrap has it."""
        drawn = self._log_examples_with_draws(batch)
        return None if drawn is None else np.exp(drawn[1])

    def lr_at(self, batch: float) -> float | None:
        """Learning rate at a global batch: the best one measured, or on the line between those in logs."""
        known = self.batch_summary.dropna(subset="lr")
        if known.empty:
            return None
        if batch in known.index:
            return self._summary_value("lr", batch)
        return float(np.exp(np.interp(np.log(batch), np.log(known.index.to_numpy(float)), np.log(known.lr))))

    def missing_measurements(self, batch: float) -> str | None:
        """Why the examples at a batch cannot be told; None if they can."""
        if batch in self.batch_summary.index and self._summary_value("reached", batch) < MIN_SUCCESS_RATE:
            return "a learning rate with which this batch reaches the target"
        if batch in self.batch_summary.index or self.log_parameters is not None:
            return None
        return "runs at three global batches, the largest several times the smallest"

    def _summary_value(self, column: str, batch: float) -> float:
        return float(self.batch_summary[column].to_numpy(float)[self.batch_summary.index == batch][0])

    def _with_interval(self, index: int) -> tuple[float, float, float] | None:
        if self.log_parameters is None:
            return None
        low, high = np.quantile(self.log_parameter_draws[:, index], INTERVAL_QUANTILES)
        return float(np.exp(self.log_parameters[index])), float(np.exp(low)), float(np.exp(high))

    def _log_examples_with_draws(self, batch: float) -> tuple[float, FloatArray] | None:
        """Log of the examples, and each draw's."""
        if self.missing_measurements(batch):
            return None
        noise = np.random.default_rng(int(batch)).standard_normal((2, CURVE_BOOTSTRAP_DRAWS))
        here = batch in self.batch_summary.index
        mean, error = (self._summary_value(name, batch) if here else 0.0 for name in ("log_examples", "error"))
        measured = mean + error * noise[0]
        if here and (self.log_parameters is None or batch in self.left_out_batches):
            return mean, measured
        fit = float(log_examples(np.array([batch]), *self.log_parameters)[0])  # type: ignore[misc]  # missing saw to it
        fits = (
            self.log_parameter_draws[:, 0]
            + np.log1p(batch / np.exp(self.log_parameter_draws[:, 1]))
            + self.lack_of_fit_sd * noise[1]
        )
        if not here:
            return fit, fits
        weight = float(fits.var() / (fits.var() + error**2))
        return weight * mean + (1 - weight) * fit, weight * measured + (1 - weight) * fits


def fit_examples_curve(runs: pd.DataFrame) -> ExamplesCurve:
    """The curve that runs of global_batch, lr, seed, examples and reached tell of."""
    noise = pool_seed_noise(group_by_setting(runs).values())
    best = select_best_lr(runs, noise)
    unsure = shrink_seed_noise(noise, len(best) - best.global_batch.nunique())
    means = summarize_batches(best, noise, unsure)
    left_out = find_turned_up_batches(means)
    kept = RunArrays.from_table(best[~best.global_batch.isin(left_out)])
    known = means.drop(index=left_out)
    if len(known) < 2:
        return ExamplesCurve(
            best_lr_runs=best,
            batch_summary=means,
            left_out_batches=left_out,
            log_parameters=None,
            log_parameter_draws=np.empty((0, 2)),
            seed_noise=noise,
            lack_of_fit_sd=0,
        )
    logs = fit_hyperbola(kept, noise)
    lack = estimate_lack_of_fit(known, logs)
    drawn = [bootstrap_runs(kept, unsure, lack, draw) for draw in range(CURVE_BOOTSTRAP_DRAWS)]
    bounds = np.log(kept.batch.min()) - SEARCH_MARGIN_LOGS, np.log(kept.batch.max()) + SEARCH_MARGIN_LOGS
    starts = np.broadcast_to(np.array(logs), (CURVE_BOOTSTRAP_DRAWS, 2))
    draws = gauss_newton(RunArrays.stack(drawn), noise, starts, bounds)
    return ExamplesCurve(
        best_lr_runs=best,
        batch_summary=means,
        left_out_batches=left_out,
        log_parameters=logs,
        log_parameter_draws=draws,
        seed_noise=noise,
        lack_of_fit_sd=lack,
    )


def shrink_seed_noise(seed_noise: float, degrees_of_freedom: int) -> float:
    """A standard deviation between seeds that is known with few degrees of freedom leans to what is usual."""
    return float(np.sqrt((PRIOR_SEED_NOISE**2 + degrees_of_freedom * seed_noise**2) / (1 + degrees_of_freedom)))


def estimate_lack_of_fit(batch_summary: pd.DataFrame, log_parameters: tuple[float, float]) -> float:
    """How far means lie from the hyperbola, in log examples, after what the noise of seeds explains."""
    off = batch_summary.log_examples - log_examples(batch_summary.index.to_numpy(float), *log_parameters)
    squares = float((off**2 - batch_summary.error**2).sum())
    return float(np.sqrt(max(squares, 0.0) / max(len(batch_summary) - 2, 1)))


class SettingRuns(NamedTuple):
    """The runs of one setting."""

    examples: FloatArray
    reached: NDArray[np.bool_]

    @classmethod
    def from_table(cls, runs: pd.DataFrame) -> "SettingRuns":
        """The runs of a table."""
        return cls(runs.examples.to_numpy(float), runs.reached.to_numpy() == 1)

    @property
    def reached_log_examples(self) -> FloatArray:
        """Of the examples of those that reached the target."""
        return np.log(self.examples[self.reached])

    @property
    def sum_of_squares(self) -> float:
        """Their sum of squares about their mean."""
        return float(self.reached_log_examples.var() * len(self.reached_log_examples)) if self.reached.any() else 0.0


def group_by_setting(runs: pd.DataFrame) -> dict[tuple[float, float], SettingRuns]:
    """The runs of each batch and learning rate."""
    keys = zip(runs.global_batch.tolist(), runs.lr.fillna(0.0).tolist(), strict=True)
    places: dict[tuple[float, float], list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        places[key].append(place)
    every = SettingRuns.from_table(runs)
    return {key: SettingRuns(every.examples[own], every.reached[own]) for key, own in places.items()}


def pool_seed_noise(setting_runs: Iterable[SettingRuns]) -> float:
    """Standard deviation of log examples between seeds of one setting, over all settings that reached the target."""
    told = [(one.sum_of_squares, one.reached.sum() - 1) for one in setting_runs if one.reached.any()]
    free = sum(freedom for _, freedom in told)
    return max(MIN_SEED_NOISE, float(np.sqrt(sum(squares for squares, _ in told) / free)) if free else MIN_SEED_NOISE)


def select_best_lr(runs: pd.DataFrame, seed_noise: float) -> pd.DataFrame:
    """The runs of each batch at the learning rate that needs the fewest examples there.

    A rate that was tried less is trusted less: among many rates with one run each, the best is also the luckiest.
    """

    def cautious(here: pd.DataFrame) -> float:
        return expected_examples(SettingRuns.from_table(here)) * float(
            np.exp(LCB_STANDARD_ERRORS * seed_noise / np.sqrt(len(here)))
        )

    chosen = []
    for _, here in runs.groupby("global_batch"):
        rates = [group for _, group in here.groupby(here.lr.fillna(0.0))]
        chosen.append(min(rates, key=lambda group: (cautious(group), censored_mean_log(group, seed_noise))))
    return pd.concat(chosen)


def expected_examples(setting_runs: SettingRuns) -> float:
    """Examples until the target on average, where a run that was cut off is followed by another; infinite if all were.

    All examples spent over the runs that reached it (Hansen et al., "Real-parameter black-box optimization
    benchmarking", 2009).
    """
    reached = int(setting_runs.reached.sum())
    return float(setting_runs.examples.sum()) / reached if reached else np.inf


def censored_mean_log(runs: pd.DataFrame, seed_noise: float) -> float:
    """Most likely mean of log examples, runs that were cut off being above their cap; infinite if all were."""
    logs, reached = np.log(runs.examples.to_numpy(float)), runs.reached.to_numpy() == 1
    if not reached.any():
        return np.inf
    if reached.all():
        return float(logs.mean())

    def slope(mean: float) -> float:
        above = (logs[~reached] - mean) / seed_noise
        hazard = np.exp(norm.logpdf(above) - norm.logsf(above))
        return float(((logs[reached] - mean) / seed_noise).sum() + hazard.sum())

    return float(brentq(slope, logs.min() - seed_noise, logs.max() + 10 * seed_noise * len(logs)))


def summarize_batches(best_lr_runs: pd.DataFrame, seed_noise: float, shrunk_noise: float) -> pd.DataFrame:
    """One row a batch; `unsure` is the noise as far as it is known."""
    rows = {}
    for batch, here in best_lr_runs.groupby("global_batch"):
        seeds = SettingRuns.from_table(here)
        reached = int(seeds.reached.sum())
        rows[batch] = {
            "lr": float(here.lr.iloc[0]),
            "log_examples": censored_mean_log(here, seed_noise),
            "error": shrunk_noise / np.sqrt(max(reached, 1)),
            "runs": len(here),
            "reached": reached / len(here),
            "squares": seeds.sum_of_squares,
            "own_free": max(reached - 1, 0),
        }
    return pd.DataFrame.from_dict(rows, orient="index").sort_index()


def find_turned_up_batches(batch_summary: pd.DataFrame) -> list[float]:
    """Batches that do not train, and the smallest ones that need more examples than a larger batch does."""
    fails = [batch for batch in batch_summary.index if batch_summary.reached[batch] < MIN_SUCCESS_RATE]
    trained = batch_summary.drop(index=fails)
    turned: list[float] = []
    for batch, following in pairwise(trained.index):
        rise = trained.log_examples[batch] - trained.log_examples[following]
        sure = 2 * np.hypot(trained.error[batch], trained.error[following])
        if rise <= max(MIN_LOG_RISE, sure):
            break
        turned.append(batch)
    return fails + turned
