"""The time of one optimizer step: the form that the rows tell of, fitted, with what they cannot tell left open.

Which of the forms is used is decided on rows held out: those of the most workers.

Steps alone hardly tell an exchange's alpha from its volume, and on one size of ring not at all. Exchanges timed by
themselves, of fewer bytes than the gradient's, do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
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
from equipoise.type_aliases import FloatArray

STEP_TIME_BOOTSTRAP_DRAWS = 60  # of the bootstrap
MIN_PARAMETER_SECONDS, MAX_PARAMETER_SECONDS = 1e-9, 1e4  # seconds that any parameter may be
FIT_TOLERANCES = {"ftol": 1e-6, "xtol": 1e-6}  # where g hardly matters the last digits of a fit take minutes
OVERLAP_EXPONENT_RANGE = (1.0, 10.0)  # of g
MIN_ONE_NODE_OVERLAP_EXPONENT = 0.5  # lowest g on a single machine, whose cores also do the exchange
PRIOR_ALPHA_SHARE, PRIOR_ALPHA_LOG_SD = (
    0.02,
    3.0,
)  # alpha as a share of volume, and how far it usually is from that, in natural logs
MIN_LOG_SCATTER = 0.002  # least scatter of rows about a fit, in log seconds
INTERVAL_QUANTILES = (0.1, 0.9)  # quantiles of every interval: 80 %
MEASUREMENT_WEIGHT = 0.75  # share of a measurement, beside the fit, in what is believed of its setting
MIN_SPARE_ROWS = 4  # rows beyond the parameters before held-out rows may choose the form
MIN_BYTES_RATIO = 8  # times the bytes of the smallest exchange in the largest: enough to tell alpha from volume
NO_EXCHANGES = pd.DataFrame([], columns=["nodes", "workers", "kind", "share", "seconds"], dtype=float)


@dataclass(frozen=True, kw_only=True)
class StepTimeFit:
    """A fit, and how far it can be trusted."""

    form: StepTimeForm
    parameters: dict[str, float]
    relative_error: float
    """mean relative error on the rows held out, or on all where none could be"""
    rows: pd.DataFrame = field(repr=False)
    parameter_draws: Sequence[dict[str, float]] = field(repr=False)
    residuals: FloatArray = field(repr=False)
    """of rows about the fit, in log seconds, most of them within"""
    pace_sd: float = 0.0
    """standard deviation of log seconds from one moment to another, where rows tell of it"""
    gradient_bytes: float | None = None
    """where rows tell of them"""

    def fitted_seconds(self, settings: StepSettings) -> FloatArray:
        """Seconds of a step, where `missing` says nothing against it."""
        return step_seconds(self.form, self.parameters, settings)

    def shrunk_seconds(self, settings: StepSettings) -> FloatArray:
        """The same, where it was measured mostly as that says: rows scatter less about the truth than fits do."""
        known = self.rows.groupby(["nodes", "workers", "batch"]).seconds.median()
        measured = known.reindex(pd.MultiIndex.from_arrays(settings)).to_numpy(float)
        fits = self.fitted_seconds(settings)
        return np.asarray(
            np.where(np.isnan(measured), fits, measured**MEASUREMENT_WEIGHT * fits ** (1 - MEASUREMENT_WEIGHT))
        )

    def sample_seconds(self, settings: StepSettings) -> FloatArray:
        """Seconds of a step as each draw of the bootstrap has it: one row a draw, a row's own spread included."""
        rng = np.random.default_rng(0)
        fits = np.array([step_seconds(self.form, draw, settings) for draw in self.parameter_draws])
        return np.asarray(fits * np.exp(rng.choice(self.residuals, fits.shape)))

    def missing_measurements(self, nodes: int, workers: int, batch: int) -> str | None:
        """What would have to be measured before this setting can be predicted; None if nothing."""
        if not self.form.has_batch_term and batch not in set(self.rows.batch):
            return "rows of a second batch per worker"
        if workers == 1:
            return None if (self.rows.workers == 1).any() or self.is_compute_identified() else "rows of one worker"
        sizes = set(self.rows.workers[(self.rows.nodes > 1) == (nodes > 1)]) - {1}
        where = "on several nodes" if nodes > 1 else "within one node"
        if not sizes:
            return f"rows of several workers {where}"
        told = len(self.form.between_terms if nodes > 1 else self.form.local_terms) > 1
        return None if told or workers in sizes else f"rows of another number of workers {where}"

    def is_compute_identified(self) -> bool:
        """Whether computing was told from the exchange although no row has one worker."""
        return "alpha" in self.form.local_terms or "alpha" in self.form.between_terms

    @property
    def identifiable(self) -> bool:
        """Whether computing, and every exchange that was measured, is known beyond what was measured."""
        single = self.rows.nodes == 1
        exchanges = [(self.form.local_terms, single & (self.rows.workers > 1)), (self.form.between_terms, ~single)]
        return self.form.has_batch_term and all(len(names) > 1 for names, seen in exchanges if seen.any())


def fit_step_time(rows: pd.DataFrame, exchanges: pd.DataFrame = NO_EXCHANGES) -> StepTimeFit:
    """The system that rows of nodes, workers, batch and seconds tell of.

    `exchanges` are rows of nodes, workers, kind (sum or message), share (of the gradient's bytes) and seconds.
    """
    pace_sd = float(rows.pace_sd.median()) if "pace_sd" in rows else 0.0
    size = float(rows.gradient_bytes.median()) if "gradient_bytes" in rows else None
    rows = rows.groupby(["nodes", "workers", "batch"])["seconds"].median().reset_index()
    form, held_out = select_form(rows, exchanges)
    parameters = fit_form(form, rows, exchanges)
    logs = log_residuals(form, parameters, rows)
    draws = bootstrap_parameters(form, parameters, rows, exchanges)
    return StepTimeFit(
        form=form,
        parameters=parameters,
        relative_error=mean_relative_error(form, parameters, rows) if held_out is None else held_out,
        rows=rows,
        parameter_draws=draws,
        residuals=inflate_residuals(logs, form),
        pace_sd=pace_sd,
        gradient_bytes=size,
    )


def list_candidate_forms(rows: pd.DataFrame, exchanges: pd.DataFrame = NO_EXCHANGES) -> list[StepTimeForm]:
    """Every form that the rows can tell the parameters of, the simplest first."""
    local = find_identifiable_terms(rows[rows.nodes == 1], rows, exchanges[exchanges.nodes == 1])
    between = find_identifiable_terms(rows[rows.nodes > 1], rows, exchanges[exchanges.nodes > 1])
    batch, told = rows.batch.nunique() > 1, len(rows) + len(exchanges)
    plain = StepTimeForm(local_terms=local, between_terms=between, has_batch_term=batch)
    found = [plain]
    if told > len(plain.parameter_names) + 1 and rows.batch.nunique() > 2 and (rows.workers > 1).any():
        found.append(plain._replace(has_overlap=True))
    if between and rows.nodes[rows.nodes > 1].nunique() > 1:
        inside = np.ceil(rows.workers.to_numpy() / rows.nodes.to_numpy())
        sizes = len(set(inside[inside > 1]))
        rings = ("alpha", "volume") if sizes > 1 else ("volume",) if sizes else ()
        found += [form._replace(two_rings=True, local_terms=rings) for form in list(found)]
    return [form for form in found if told >= len(form.parameter_names)] or [plain]


def find_identifiable_terms(level_rows: pd.DataFrame, rows: pd.DataFrame, exchanges: pd.DataFrame) -> tuple[str, ...]:
    """Parameters that rows tell: both need two sizes of the ring, and one worker or a third size beside them.

    Or exchanges of few bytes and of many.
    """
    sizes = level_rows.workers[level_rows.workers > 1].nunique()
    if not sizes:
        return ()
    wide = len(exchanges) and exchanges.share.max() >= MIN_BYTES_RATIO * exchanges.share.min()
    enough = wide or sizes > 2 or (sizes == 2 and (rows.workers == 1).any())
    return ("alpha", "volume") if enough else ("volume",)


def select_form(rows: pd.DataFrame, exchanges: pd.DataFrame) -> tuple[StepTimeForm, float | None]:
    """The form that predicts the rows of the most workers best from the others, and its error there."""
    counts = sorted(rows.workers.unique())
    possible = list_candidate_forms(rows, exchanges)
    if len(counts) > 2:
        first_held = counts[-(len(counts) // 3)]
        known, held = rows[rows.workers < first_held], rows[rows.workers >= first_held]
        beside = exchanges[exchanges.workers < first_held]
        sure = len(known) + len(beside) - MIN_SPARE_ROWS
        candidates = [
            form
            for form in list_candidate_forms(known, beside)
            if form in possible and len(form.parameter_names) <= sure
        ]
        errors = {form: mean_relative_error(form, fit_form(form, known, beside), held) for form in candidates}
        if errors:
            best = min(errors, key=lambda form: errors[form])
            return best, errors[best]
    return possible[-1 if len(rows) + len(exchanges) > MIN_SPARE_ROWS + len(possible[-1].parameter_names) else 0], None


def mean_relative_error(form: StepTimeForm, parameters: dict[str, float], rows: pd.DataFrame) -> float:
    """Mean relative error."""
    return float(np.mean(np.abs(np.expm1(log_residuals(form, parameters, rows)))))


def log_residuals(form: StepTimeForm, parameters: dict[str, float], rows: pd.DataFrame) -> FloatArray:
    """log(fit / measured) of each row."""
    return np.asarray(
        np.log(step_seconds(form, parameters, StepSettings.from_table(rows)) / rows.seconds.to_numpy(float))
    )


def fit_form(
    form: StepTimeForm, rows: pd.DataFrame, exchanges: pd.DataFrame, initial_guess: dict[str, float] | None = None
) -> dict[str, float]:
    """Parameters with the least robust error in log seconds: the best of several starts, or of the one given."""
    free = fit_robust_least_squares(
        form, rows, exchanges, [initial_guess] if initial_guess else build_initial_guesses(form, rows), prior_weight=0.0
    )
    scatter = max(MIN_LOG_SCATTER, 1.4826 * float(np.median(np.abs(log_residuals(form, free, rows)))))
    return fit_robust_least_squares(form, rows, exchanges, [free], prior_weight=scatter / PRIOR_ALPHA_LOG_SD)


def fit_robust_least_squares(
    form: StepTimeForm,
    rows: pd.DataFrame,
    exchanges: pd.DataFrame,
    guesses: Sequence[dict[str, float]],
    prior_weight: float,
) -> dict[str, float]:
    """The best fit from any of the starts, alpha drawn to where it usually is."""
    unknown = [level for level, here in zip(NETWORK_LEVELS, (exchanges.nodes == 1, exchanges.nodes > 1), strict=True)
               if not here.any()]  # fmt: skip
    least_overlap = MIN_ONE_NODE_OVERLAP_EXPONENT if (rows.nodes == 1).all() else OVERLAP_EXPONENT_RANGE[0]
    low = [np.log(least_overlap if name == "g" else MIN_PARAMETER_SECONDS) for name in form.parameter_names]
    high = [
        np.log(OVERLAP_EXPONENT_RANGE[1] if name == "g" else MAX_PARAMETER_SECONDS) for name in form.parameter_names
    ]

    at, measured, timed = (
        StepSettings.from_table(rows),
        np.log(rows.seconds.to_numpy(float)),
        ExchangeTimings.from_table(exchanges),
    )

    def off(logs: FloatArray) -> FloatArray:
        parameters = dict(zip(form.parameter_names, np.exp(logs).tolist(), strict=True))
        both = np.log(step_seconds(form, parameters, at)) - measured, timed.log_residuals(form, parameters)
        return np.concatenate([*both, np.multiply(prior_weight, alpha_prior_penalty(parameters, unknown))])

    found = []
    for guess in guesses:
        begin = np.clip(
            np.log([guess[name] for name in form.parameter_names]), np.add(low, 1e-6), np.subtract(high, 1e-6)
        )
        found.append(
            least_squares(off, begin, bounds=(low, high), loss="soft_l1", f_scale=0.1, x_scale="jac", **FIT_TOLERANCES)
        )
    best = min(found, key=lambda fit: fit.cost)
    return dict(zip(form.parameter_names, np.exp(best.x).tolist(), strict=True))


class ExchangeTimings(NamedTuple):
    """Exchanges that were timed by themselves: arrays of one length."""

    settings: StepSettings
    byte_share: FloatArray
    seconds: FloatArray
    is_message: NDArray[np.bool_]
    is_between_nodes: NDArray[np.bool_]

    @classmethod
    def from_table(cls, table: pd.DataFrame) -> "ExchangeTimings":
        """Those of a table."""
        share, took = table.share.to_numpy(float), table.seconds.to_numpy(float)
        at = StepSettings.from_table(table.assign(batch=0))
        return cls(at, share, took, (table.kind == "message").to_numpy(bool), (table.nodes > 1).to_numpy(bool))

    def log_residuals(self, form: StepTimeForm, parameters: dict[str, float]) -> FloatArray:
        """log(fit / measured) of each."""
        if not len(self.byte_share):
            return np.empty(0)
        _, sums = compute_and_exchange_seconds(form, parameters, self.settings, self.byte_share)
        local, between = (
            [parameters.get(f"{level}_{name}", 0.0) for name in ("alpha", "volume")] for level in NETWORK_LEVELS
        )
        alpha, volume = np.where(self.is_between_nodes, np.array(between)[:, None], np.array(local)[:, None])
        foretold = np.where(self.is_message, alpha + self.byte_share * volume, sums)
        return np.asarray(np.log(foretold / self.seconds))


def alpha_prior_penalty(parameters: dict[str, float], levels: Sequence[str]) -> list[float]:
    """How far an alpha lies from what it usually is beside its volume: small rings hardly tell one from the other.

    Without it a fit to at most four workers puts alpha at 0 and predicts large rings too fast.
    """
    return [
        float(np.log(parameters[f"{level}_alpha"] / (PRIOR_ALPHA_SHARE * parameters[f"{level}_volume"])))
        for level in levels
        if f"{level}_alpha" in parameters
    ]


def build_initial_guesses(form: StepTimeForm, rows: pd.DataFrame) -> list[dict[str, float]]:
    """Starts from what single workers take, with the exchange taking a tenth, half or nine tenths of the rest."""
    least, most = float(rows.seconds.min()), float(rows.seconds.max())
    slope = max(most - least, least * 0.01) / max(float(rows.batch.max()), 1.0)
    guesses = []
    for share in (0.1, 0.5, 0.9):
        for g in (1.5, 4.0) if form.has_overlap else (1.0,):
            volume = max(most * share, MIN_PARAMETER_SECONDS)
            guess = {"a": least * (1 - share), "c": slope * share, "g": g}
            guess |= {f"{level}_{name}": volume / (50 if name == "alpha" else 2) for level in NETWORK_LEVELS
                      for name in ("alpha", "volume")}  # fmt: skip
            guesses.append(guess)
    return guesses


def bootstrap_parameters(
    form: StepTimeForm, parameters: dict[str, float], rows: pd.DataFrame, exchanges: pd.DataFrame
) -> list[dict[str, float]]:
    """Fits to what might as well have been measured: whole groups of workers are drawn anew where there are enough.

    Rows of one group share what is peculiar to it (its place in the network), so single
    rows drawn anew would make a fit look surer than it is.
    """
    rng = np.random.default_rng(0)
    groups = [group for _, group in rows.groupby(["nodes", "workers"])]
    found = []
    for _ in range(STEP_TIME_BOOTSTRAP_DRAWS):
        if len(groups) > 2 * len(form.parameter_names):
            drawn = pd.concat([groups[i] for i in rng.integers(0, len(groups), len(groups))])
        else:  # too few to leave any out: the residuals are dealt to the rows anew
            noise = rng.choice(inflate_residuals(log_residuals(form, parameters, rows), form), len(rows))
            drawn = rows.assign(seconds=rows.seconds * np.exp(noise))
        off = ExchangeTimings.from_table(exchanges).log_residuals(form, parameters)
        beside = exchanges.assign(seconds=exchanges.seconds * np.exp(rng.choice(off, len(off)) if len(off) else off))
        held = is_still_identifiable(form, drawn, exchanges)
        found.append(fit_form(form, drawn, beside, initial_guess=parameters) if held else parameters)
    return found


def is_still_identifiable(form: StepTimeForm, rows: pd.DataFrame, exchanges: pd.DataFrame) -> bool:
    """Whether a draw still tells all the parameters."""
    between, local = rows[rows.nodes > 1], rows[(rows.nodes == 1) & (rows.workers > 1)]
    sizes = {"between": between, "local": rows if form.two_rings else local}
    timed = {"between": (exchanges.nodes > 1).any(), "local": (exchanges.nodes == 1).any()}
    levels = [
        (level, names) for level, names in (("between", form.between_terms), ("local", form.local_terms)) if names
    ]
    return rows.batch.nunique() > form.has_batch_term and all(
        timed[level] or sizes[level].workers.nunique() >= len(names) for level, names in levels
    )


def inflate_residuals(residuals: FloatArray, form: StepTimeForm) -> FloatArray:
    """Residuals made as large as errors are: the parameters have taken a part of them away."""
    return residuals * float(np.sqrt(len(residuals) / max(len(residuals) - len(form.parameter_names), 1)))
