"""Robust least squares fit of one form of the step time model, with a weak prior on alpha.

Rows of step times and separately timed exchanges are fitted together, in log seconds.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from equipoise.planning.step_time_model import (
    NETWORK_LEVELS,
    StepSettings,
    StepTimeForm,
    compute_and_exchange_seconds,
    step_seconds,
)
from equipoise.type_aliases import FloatArray, IntArray

MIN_PARAMETER_SECONDS, MAX_PARAMETER_SECONDS = 1e-9, 1e4  # bounds of every parameter except g
FIT_TOLERANCES = {"ftol": 1e-6, "xtol": 1e-6}  # where g hardly matters, the last digits of a fit take minutes
OVERLAP_EXPONENT_RANGE = (1.0, 10.0)  # bounds of g
MIN_ONE_NODE_OVERLAP_EXPONENT = 0.5  # lowest g on a single machine, whose cores also do the exchange
PRIOR_ALPHA_SHARE = 0.02  # usual alpha as a share of volume
PRIOR_ALPHA_LOG_SD = 3.0  # usual deviation from that share, in natural logs
MIN_LOG_SCATTER = 0.002  # least scatter of rows about a fit, in log seconds


class ExchangeTimings(NamedTuple):
    """Exchanges timed without training, as arrays of equal length."""

    settings: StepSettings
    byte_share: FloatArray
    """bytes over the gradient's bytes"""
    seconds: FloatArray
    is_message: NDArray[np.bool_]
    """true for one message between two workers, false for a sum over all workers"""
    is_between_nodes: NDArray[np.bool_]

    @classmethod
    def from_table(cls, table: pd.DataFrame) -> "ExchangeTimings":
        """Build the arrays from a table with the columns nodes, workers, kind, share and seconds."""
        share, seconds = table.share.to_numpy(float), table.seconds.to_numpy(float)
        settings = StepSettings.from_table(table.assign(batch=0))
        return cls(settings, share, seconds, (table.kind == "message").to_numpy(bool), (table.nodes > 1).to_numpy(bool))

    def log_residuals(self, form: StepTimeForm, parameters: dict[str, float]) -> FloatArray:
        """Return log(fit / measured) of each exchange."""
        if not len(self.byte_share):
            return np.empty(0)
        _, sums = compute_and_exchange_seconds(form, parameters, self.settings, self.byte_share)
        local, between = (
            [parameters.get(f"{level}_{name}", 0.0) for name in ("alpha", "volume")] for level in NETWORK_LEVELS
        )
        alpha, volume = np.where(self.is_between_nodes, np.array(between)[:, None], np.array(local)[:, None])
        fitted = np.where(self.is_message, alpha + self.byte_share * volume, sums)
        return np.asarray(np.log(fitted / self.seconds))


def select_exchanges(form: StepTimeForm, exchanges: pd.DataFrame) -> pd.DataFrame:
    """Return the exchanges on network levels that a form has terms for: no step tells how the others add to it."""
    is_used = np.where(exchanges.nodes > 1, bool(form.between_terms), bool(form.local_terms))
    return exchanges[is_used.astype(bool)]


class FitRows(NamedTuple):
    """Rows that a form is fitted to, as arrays: a bootstrap fits a hundred times, and tables would take half of it."""

    settings: StepSettings
    log_seconds: FloatArray
    """log of the seconds per step at each setting"""
    exchanges: ExchangeTimings
    """exchanges on the network levels that the form has terms for"""

    @classmethod
    def from_tables(cls, form: StepTimeForm, rows: pd.DataFrame, exchanges: pd.DataFrame) -> "FitRows":
        """Build the arrays from a table of step times and one of exchanges."""
        timings = ExchangeTimings.from_table(select_exchanges(form, exchanges))
        return cls(StepSettings.from_table(rows), np.log(rows.seconds.to_numpy(float)), timings)

    def select(self, order: IntArray) -> "FitRows":
        """Return the rows of step times at these positions, with all exchanges."""
        settings = StepSettings(*(column[order] for column in self.settings))
        return self._replace(settings=settings, log_seconds=self.log_seconds[order])

    def shift(self, errors: FloatArray) -> "FitRows":
        """Return rows that took longer by errors in log seconds."""
        return self._replace(log_seconds=self.log_seconds + errors)

    def shift_exchanges(self, errors: FloatArray) -> "FitRows":
        """Return rows whose exchanges took longer by errors in log seconds."""
        return self._replace(exchanges=self.exchanges._replace(seconds=self.exchanges.seconds * np.exp(errors)))

    def log_residuals(self, form: StepTimeForm, parameters: dict[str, float]) -> FloatArray:
        """Return log(fit / measured) of each row of step times."""
        return np.asarray(np.log(step_seconds(form, parameters, self.settings)) - self.log_seconds)

    def list_levels_without_exchanges(self) -> list[str]:
        """List the network levels on which no exchange was timed."""
        is_between = self.exchanges.is_between_nodes
        are_timed = (~is_between).any(), is_between.any()
        return [level for level, is_timed in zip(NETWORK_LEVELS, are_timed, strict=True) if not is_timed]


def fit_form(
    form: StepTimeForm, rows: pd.DataFrame, exchanges: pd.DataFrame, initial_guess: dict[str, float] | None = None
) -> dict[str, float]:
    """Fit the parameters of a form to tables from one initial guess, or from several by default."""
    return fit_rows(form, FitRows.from_tables(form, rows, exchanges), initial_guess)


def fit_rows(form: StepTimeForm, rows: FitRows, initial_guess: dict[str, float] | None = None) -> dict[str, float]:
    """Fit the parameters of a form from one initial guess, or from several by default.

    A first fit without the prior measures the scatter of the rows, which sets the weight of the prior in the second.
    """
    guesses = [initial_guess] if initial_guess else build_initial_guesses(form, rows)
    without_prior = fit_robust_least_squares(form, rows, guesses, prior_weight=0.0)
    scatter = max(MIN_LOG_SCATTER, 1.4826 * float(np.median(np.abs(rows.log_residuals(form, without_prior)))))
    return fit_robust_least_squares(form, rows, [without_prior], prior_weight=scatter / PRIOR_ALPHA_LOG_SD)


def fit_robust_least_squares(
    form: StepTimeForm, rows: FitRows, guesses: Sequence[dict[str, float]], prior_weight: float
) -> dict[str, float]:
    """Return the best soft-L1 fit from any of the guesses, with alpha drawn to its usual share of the volume."""
    levels_without_exchanges = rows.list_levels_without_exchanges()
    names = form.parameter_names
    min_overlap = MIN_ONE_NODE_OVERLAP_EXPONENT if (rows.settings.nodes == 1).all() else OVERLAP_EXPONENT_RANGE[0]
    low = [np.log(min_overlap if name == "g" else MIN_PARAMETER_SECONDS) for name in names]
    high = [np.log(OVERLAP_EXPONENT_RANGE[1] if name == "g" else MAX_PARAMETER_SECONDS) for name in names]

    def residuals(log_parameters: FloatArray) -> FloatArray:
        parameters = dict(zip(names, np.exp(log_parameters).tolist(), strict=True))
        of_prior = np.multiply(prior_weight, alpha_prior_penalty(parameters, levels_without_exchanges))
        of_exchanges = rows.exchanges.log_residuals(form, parameters)
        return np.concatenate([rows.log_residuals(form, parameters), of_exchanges, of_prior])

    fits = []
    for guess in guesses:
        start = np.clip(np.log([guess[name] for name in names]), np.add(low, 1e-6), np.subtract(high, 1e-6))
        fits.append(
            least_squares(
                residuals, start, bounds=(low, high), loss="soft_l1", f_scale=0.1, x_scale="jac", **FIT_TOLERANCES
            )
        )
    best = min(fits, key=lambda fit: fit.cost)
    return dict(zip(names, np.exp(best.x).tolist(), strict=True))


def alpha_prior_penalty(parameters: dict[str, float], levels: Sequence[str]) -> list[float]:
    """Return the log distance of each level's alpha from its usual share of the volume.

    Small rings hardly separate alpha from volume: without the prior a fit to at most four workers puts alpha at 0 and
    predicts too little time for large rings.
    """
    return [
        float(np.log(parameters[f"{level}_alpha"] / (PRIOR_ALPHA_SHARE * parameters[f"{level}_volume"])))
        for level in levels
        if f"{level}_alpha" in parameters
    ]


def build_initial_guesses(form: StepTimeForm, rows: FitRows) -> list[dict[str, float]]:
    """Build initial guesses in which the exchange takes a tenth, half or nine tenths of a step."""
    shortest, longest = (float(np.exp(end)) for end in (rows.log_seconds.min(), rows.log_seconds.max()))
    slope = max(longest - shortest, shortest * 0.01) / max(float(rows.settings.batch.max()), 1.0)
    guesses = []
    for share in (0.1, 0.5, 0.9):
        volume = max(longest * share, MIN_PARAMETER_SECONDS)
        for g in (1.5, 4.0) if form.has_overlap else (1.0,):
            guess = {"a": shortest * (1 - share), "c": slope * share, "g": g}
            for level in NETWORK_LEVELS:
                guess |= {f"{level}_alpha": volume / 50, f"{level}_volume": volume / 2}
            guesses.append(guess)
    return guesses


def log_residuals(form: StepTimeForm, parameters: dict[str, float], rows: pd.DataFrame) -> FloatArray:
    """Return log(fit / measured) of each row of step times."""
    fitted = step_seconds(form, parameters, StepSettings.from_table(rows))
    return np.asarray(np.log(fitted / rows.seconds.to_numpy(float)))


def mean_relative_error(form: StepTimeForm, parameters: dict[str, float], rows: pd.DataFrame) -> float:
    """Return the mean relative error of the fit over rows of step times."""
    return float(np.mean(np.abs(np.expm1(log_residuals(form, parameters, rows)))))


def inflate_residuals(residuals: FloatArray, form: StepTimeForm) -> FloatArray:
    """Scale residuals up to the size of the errors, since the fitted parameters absorb a part of them."""
    return residuals * float(np.sqrt(len(residuals) / max(len(residuals) - len(form.parameter_names), 1)))
