"""Examples to the target over the global batch: a hyperbola fitted to the runs of all seeds.

The learning rate of each batch is chosen before the fit. At very small batches the curve often turns up
again, because the learning rate was too large there or training fails; such batches are left out of the
fit and listed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
import pandas as pd

from equipoise.planning.critical_batch import (
    SEARCH_MARGIN_LOGS,
    RunArrays,
    bootstrap_runs,
    fit_hyperbola,
    gauss_newton,
    log_examples,
)
from equipoise.planning.setting_runs import (
    SettingRuns,
    censored_mean_log,
    estimate_lr_curvature,
    expected_examples,
    group_by_setting,
    pool_seed_noise,
    shrink_seed_noise,
)
from equipoise.planning.step_time_fit import INTERVAL_QUANTILES
from equipoise.type_aliases import FloatArray

CURVE_BOOTSTRAP_DRAWS = 100
MAX_INTERVAL_RATIO = 4.0  # a critical batch whose interval spans more than this factor is not identified
POOLED_SCATTER_RUNS = 4  # weight, in runs, of the scatter of all settings beside a setting's own runs
MIN_LOG_RISE = 0.1  # in log examples: how much more a smaller batch must need before it counts as turned up
LR_INTERPOLATION_OCTAVES = 0.5  # usual error of a learning rate that is interpolated between two batches
LCB_STANDARD_ERRORS = 0.5  # standard errors added to a learning rate's mean, so that little-tried rates rank lower
MIN_SUCCESS_RATE = 0.5  # share of runs reaching the target below which a batch counts as not training


@dataclass(frozen=True, kw_only=True)
class ExamplesCurve:
    """Examples to the target as a function of the global batch, with bootstrap draws of the fit."""

    best_lr_runs: pd.DataFrame = field(repr=False)
    """runs at the best learning rate of each batch"""
    batch_summary: pd.DataFrame
    """by batch: lr, mean of log examples, its standard error, number of runs, share of runs that reached the target;
    sum of squares of the log examples of these runs about their mean, and its degrees of freedom"""
    left_out_batches: Sequence[float]
    """batches left out of the fit: below the turn of the curve, or not training"""
    log_parameters: tuple[float, float] | None
    """log E_min and log B_c of the hyperbola; None with fewer than two batches to fit"""
    log_parameter_draws: FloatArray = field(repr=False)
    """log E_min and log B_c of each bootstrap draw, one row per draw"""
    seed_noise: float
    """standard deviation between seeds, in log examples"""
    lack_of_fit_sd: float
    """standard deviation of the batch means about the hyperbola beyond the seed noise, in log examples"""
    lr_curvature: float = 0.0
    """log examples per squared octave between a learning rate and the best one"""

    @property
    def critical_batch(self) -> tuple[float, float, float] | None:
        """Critical batch B_c in examples, with its interval; None without a fit."""
        return self._with_interval(1)

    @property
    def min_examples(self) -> tuple[float, float, float] | None:
        """Fewest examples E_min that reach the target, with their interval; None without a fit."""
        return self._with_interval(0)

    @property
    def identifiable(self) -> bool:
        """Whether at least three fitted batches reach up to the critical batch and leave it a narrow interval."""
        critical, fitted = self.critical_batch, self.batch_summary.index.drop(self.left_out_batches)
        if critical is None or len(fitted) < 3:
            return False
        return critical[0] <= max(fitted) and critical[2] <= MAX_INTERVAL_RATIO * critical[1]

    def seed_noise_at(self, batch: float) -> tuple[float, float]:
        """Return the standard deviation of a single run at a batch, in log examples, and its degrees of freedom.

        The scatter of the batch's own runs is shrunk to that of all batches, and this one to the prior.
        """
        pooled = shrink_seed_noise(self.seed_noise, int((self.batch_summary.runs - 1).sum())) ** 2
        measured = batch in self._summary_by_batch
        own, squares = (self._summary_value(name, batch) if measured else 0.0 for name in ("own_free", "squares"))
        variance = (POOLED_SCATTER_RUNS * pooled + squares) / (POOLED_SCATTER_RUNS + own)
        return float(np.sqrt(variance)), POOLED_SCATTER_RUNS - 1 + own

    def count_runs(self, batch: float) -> int:
        """Return how many runs reached the target at a global batch with its best learning rate.

        Runs with the same seed are one: they took the same steps. Those without one are told apart by nothing.
        """
        if batch not in self.batch_summary.index:
            return 0
        runs = self.best_lr_runs
        if "seed" not in runs:
            return round(self._summary_value("runs", batch) * self._summary_value("reached", batch))
        runs = runs[(runs.global_batch == batch) & (runs.reached == 1)]
        return int(runs.seed.nunique() + runs.seed.isna().sum())

    def examples_at(self, batch: float) -> float | None:
        """Return the examples to the target at a global batch: measurement and fit, weighted by their precision."""
        estimate = self._log_examples_with_draws(batch)
        return None if estimate is None else float(np.exp(estimate[0]))

    def sample_examples(self, batch: float) -> FloatArray | None:
        """Return the examples to the target at a global batch in each bootstrap draw."""
        estimate = self._log_examples_with_draws(batch)
        return None if estimate is None else np.exp(estimate[1])

    def lr_at(self, batch: float) -> float | None:
        """Return the learning rate at a global batch: the best one measured, or interpolated in logs."""
        lr_by_batch = self._lr_by_batch
        if not lr_by_batch:
            return None
        if batch in lr_by_batch:
            return lr_by_batch[batch]
        batches, lrs = (np.log(np.array([*values], float)) for values in (lr_by_batch, lr_by_batch.values()))
        return float(np.exp(np.interp(np.log(batch), batches, lrs)))

    @cached_property
    def _lr_by_batch(self) -> dict[float, float]:
        """Best learning rate of each measured batch; without batches that have none."""
        known = self.batch_summary.dropna(subset="lr")
        return dict(zip(known.index.tolist(), known.lr.tolist(), strict=True))

    def missing_measurements(self, batch: float) -> str | None:
        """Return what must be measured before the examples at a batch can be predicted; None if they can."""
        if batch in self._summary_by_batch and self._summary_value("reached", batch) < MIN_SUCCESS_RATE:
            return "a learning rate with which this batch reaches the target"
        if batch in self._summary_by_batch or self.log_parameters is not None:
            return None
        return "runs at three global batches, the largest several times the smallest"

    def _summary_value(self, column: str, batch: float) -> float:
        return float(self._summary_by_batch[batch][column])

    @cached_property
    def _summary_by_batch(self) -> dict[float, dict[str, float]]:
        """Rows of the summary by batch: looked up hundreds of times for a plan, which takes pandas most of its time."""
        return self.batch_summary.to_dict("index")  # type: ignore[return-value]

    def _with_interval(self, index: int) -> tuple[float, float, float] | None:
        if self.log_parameters is None:
            return None
        low, high = np.quantile(self.log_parameter_draws[:, index], INTERVAL_QUANTILES)
        return float(np.exp(self.log_parameters[index])), float(np.exp(low)), float(np.exp(high))

    def _log_examples_with_draws(self, batch: float) -> tuple[float, FloatArray] | None:
        """Return the log of the examples at a batch, and that of each draw; None if they cannot be predicted."""
        if self.missing_measurements(batch):
            return None
        noise = np.random.default_rng(int(batch)).standard_normal((2, CURVE_BOOTSTRAP_DRAWS))
        measured = batch in self._summary_by_batch
        mean, error = (self._summary_value(name, batch) if measured else 0.0 for name in ("log_examples", "error"))
        mean_draws = mean + error * noise[0]
        if self.log_parameters is None or (measured and batch in self.left_out_batches):
            return mean, mean_draws
        fit = float(log_examples(np.array([batch]), *self.log_parameters)[0])
        log_min_examples, log_critical = self.log_parameter_draws.T
        fit_draws = log_min_examples + np.log1p(batch / np.exp(log_critical)) + self.lack_of_fit_sd * noise[1]
        if not measured:
            return self._add_lr_error(batch, fit, fit_draws)
        weight = float(fit_draws.var() / (fit_draws.var() + error**2))
        return weight * mean + (1 - weight) * fit, weight * mean_draws + (1 - weight) * fit_draws

    def _add_lr_error(self, batch: float, mean: float, draws: FloatArray) -> tuple[float, FloatArray]:
        """Add what the error of the interpolated learning rate costs, in log examples."""
        octaves = LR_INTERPOLATION_OCTAVES * np.random.default_rng(int(batch) + 1).standard_normal(len(draws))
        return mean + self.lr_curvature * LR_INTERPOLATION_OCTAVES**2, draws + self.lr_curvature * octaves**2


def fit_examples_curve(runs: pd.DataFrame) -> ExamplesCurve:
    """Fit the curve to runs: rows of global_batch, lr, seed, examples and reached."""
    noise = pool_seed_noise(group_by_setting(runs).values())
    best = select_best_lr(runs, noise)
    shrunk_noise = shrink_seed_noise(noise, len(best) - best.global_batch.nunique())
    summary = summarize_batches(best, noise, shrunk_noise)
    left_out = find_turned_up_batches(summary)
    kept_runs = RunArrays.from_table(best[~best.global_batch.isin(left_out)])
    kept_summary = summary.drop(index=left_out)
    if len(kept_summary) < 2:
        return ExamplesCurve(
            best_lr_runs=best,
            batch_summary=summary,
            left_out_batches=left_out,
            log_parameters=None,
            log_parameter_draws=np.empty((0, 2)),
            seed_noise=noise,
            lack_of_fit_sd=0,
        )
    log_parameters = fit_hyperbola(kept_runs, noise)
    lack_of_fit = estimate_lack_of_fit(kept_summary, log_parameters)
    run_draws = [bootstrap_runs(kept_runs, shrunk_noise, lack_of_fit, index) for index in range(CURVE_BOOTSTRAP_DRAWS)]
    bounds = np.log(kept_runs.batch.min()) - SEARCH_MARGIN_LOGS, np.log(kept_runs.batch.max()) + SEARCH_MARGIN_LOGS
    starts = np.broadcast_to(np.array(log_parameters), (CURVE_BOOTSTRAP_DRAWS, 2))
    return ExamplesCurve(
        best_lr_runs=best,
        batch_summary=summary,
        lr_curvature=estimate_lr_curvature(runs[~runs.global_batch.isin(left_out)]),
        left_out_batches=left_out,
        log_parameters=log_parameters,
        log_parameter_draws=gauss_newton(RunArrays.stack(run_draws), noise, starts, bounds),
        seed_noise=noise,
        lack_of_fit_sd=lack_of_fit,
    )


def estimate_lack_of_fit(batch_summary: pd.DataFrame, log_parameters: tuple[float, float]) -> float:
    """Return the standard deviation of batch means about the hyperbola that seed noise leaves unexplained, in logs."""
    residuals = batch_summary.log_examples - log_examples(batch_summary.index.to_numpy(float), *log_parameters)
    squares = float((residuals**2 - batch_summary.error**2).sum())
    return float(np.sqrt(max(squares, 0.0) / max(len(batch_summary) - 2, 1)))


def select_best_lr(runs: pd.DataFrame, seed_noise: float) -> pd.DataFrame:
    """Return the runs of each batch at the learning rate that needs the fewest examples there.

    A rate with fewer runs is trusted less: among many rates with one run each, the best is also the luckiest.
    """

    def upper_bound(lr_runs: pd.DataFrame) -> float:
        margin = float(np.exp(LCB_STANDARD_ERRORS * seed_noise / np.sqrt(len(lr_runs))))
        return expected_examples(SettingRuns.from_table(lr_runs)) * margin

    best = []
    for _, batch_runs in runs.groupby("global_batch"):
        runs_by_lr = [lr_runs for _, lr_runs in batch_runs.groupby(batch_runs.lr.fillna(0.0))]
        best.append(min(runs_by_lr, key=lambda lr_runs: (upper_bound(lr_runs), censored_mean_log(lr_runs, seed_noise))))
    return pd.concat(best)


def summarize_batches(best_lr_runs: pd.DataFrame, seed_noise: float, shrunk_noise: float) -> pd.DataFrame:
    """Summarize the runs of each batch in one row; `shrunk_noise` gives the standard error of the mean."""
    rows = {}
    for batch, batch_runs in best_lr_runs.groupby("global_batch"):
        seeds = SettingRuns.from_table(batch_runs)
        reached = int(seeds.reached.sum())
        rows[batch] = {
            "lr": float(batch_runs.lr.iloc[0]),
            "log_examples": censored_mean_log(batch_runs, seed_noise),
            "error": shrunk_noise / np.sqrt(max(reached, 1)),
            "runs": len(batch_runs),
            "reached": reached / len(batch_runs),
            "squares": seeds.sum_of_squares,
            "own_free": max(reached - 1, 0),
        }
    return pd.DataFrame.from_dict(rows, orient="index").sort_index()


def find_turned_up_batches(batch_summary: pd.DataFrame) -> list[float]:
    """Return the batches that do not train, and the smallest ones that need more examples than the next larger."""
    failed = [batch for batch in batch_summary.index if batch_summary.reached[batch] < MIN_SUCCESS_RATE]
    trained = batch_summary.drop(index=failed)
    turned_up: list[float] = []
    for batch, following in pairwise(trained.index):
        rise = trained.log_examples[batch] - trained.log_examples[following]
        significant = 2 * np.hypot(trained.error[batch], trained.error[following])
        if rise <= max(MIN_LOG_RISE, significant):
            break
        turned_up.append(batch)
    return failed + turned_up
