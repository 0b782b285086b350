"""Fit of the time of one optimizer step, with what the measurements cannot identify left open.

The form of the model is chosen by its error on held-out rows: those of the most workers.

Step times alone hardly separate an exchange's alpha from its volume, and with one size of ring not at all.
Exchanges timed without training, of fewer bytes than the gradient has, do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from equipoise.planning.bottleneck.data_loading import fit_loading_seconds, remove_waits
from equipoise.planning.step_time_model import StepSettings, StepTimeForm, step_seconds
from equipoise.planning.step_time_regression import (
    FitRows,
    fit_form,
    fit_rows,
    inflate_residuals,
    log_residuals,
    mean_relative_error,
    select_exchanges,
)
from equipoise.type_aliases import FloatArray, IntArray

STEP_TIME_BOOTSTRAP_DRAWS = 60
INTERVAL_QUANTILES = (0.1, 0.9)  # quantiles of every interval: 80 %
MEASUREMENT_WEIGHT = 0.75  # weight of a setting's own measurement, beside the fit
MIN_SPARE_ROWS = 4  # rows beyond the parameters before held-out rows may choose the form
MIN_BYTES_RATIO = 8  # bytes of the largest exchange over the smallest: enough to separate alpha from volume
NO_EXCHANGES = pd.DataFrame([], columns=["nodes", "workers", "kind", "share", "seconds"], dtype=float)


@dataclass(frozen=True, kw_only=True)
class StepTimeFit:
    """Fitted step time model, with its error and its bootstrap draws."""

    form: StepTimeForm
    parameters: dict[str, float]
    relative_error: float
    """mean relative error on the held-out rows, or on all rows where none could be held out"""
    rows: pd.DataFrame = field(repr=False)
    parameter_draws: Sequence[dict[str, float]] = field(repr=False)
    residuals: FloatArray = field(repr=False)
    """residuals of the rows in log seconds, inflated to the size of the errors"""
    pace_sd: float = 0.0
    """standard deviation of log seconds from one moment to another; 0 where it was not measured"""
    gradient_bytes: float | None = None
    """bytes of the gradient; None where they are unknown"""
    loading_per_example: float = 0.0
    """seconds in which the readers of a worker read an example; 0 where no step waits for them"""

    def fitted_seconds(self, settings: StepSettings) -> FloatArray:
        """Return the fitted seconds per step, valid where `missing_measurements` is None."""
        return np.maximum(step_seconds(self.form, self.parameters, settings), self.loading_seconds(settings))

    def waits_for_data(self, settings: StepSettings) -> NDArray[np.bool_]:
        """Return whether reading a batch takes longer than computing and exchanging it."""
        return self.loading_seconds(settings) > step_seconds(self.form, self.parameters, settings)

    def loading_seconds(self, settings: StepSettings) -> FloatArray:
        """Return the seconds in which the readers of a worker read a batch: no step is shorter."""
        return np.asarray(self.loading_per_example * settings.batch)

    def shrunk_seconds(self, settings: StepSettings) -> FloatArray:
        """Return the seconds per step, mostly as measured where there is a measurement, else as fitted.

        Rows scatter less about the truth than fits do.
        """
        points = zip(*(np.asarray(values, float).tolist() for values in settings), strict=True)
        measured = np.array([self._median_seconds.get(point, np.nan) for point in points])
        fitted = self.fitted_seconds(settings)
        return np.asarray(
            np.where(np.isnan(measured), fitted, measured**MEASUREMENT_WEIGHT * fitted ** (1 - MEASUREMENT_WEIGHT))
        )

    @cached_property
    def _median_seconds(self) -> dict[tuple[float, ...], float]:
        """Median seconds of each measured setting."""
        table = summarize_settings(self.rows)[["nodes", "workers", "batch", "seconds"]].to_numpy(float).tolist()
        return {tuple(point): seconds for *point, seconds in table}

    @cached_property
    def _draws_by_name(self) -> dict[str, FloatArray]:
        """Values of each parameter in all bootstrap draws, as a column."""
        return {name: np.array([[draw[name]] for draw in self.parameter_draws]) for name in self.parameter_draws[0]}

    def sample_seconds(self, settings: StepSettings) -> FloatArray:
        """Return the seconds per step in each bootstrap draw, one row per draw, with the scatter of single rows."""
        rng = np.random.default_rng(0)
        fitted = np.maximum(step_seconds(self.form, self._draws_by_name, settings), self.loading_seconds(settings))
        return np.asarray(fitted * np.exp(rng.choice(self.residuals, fitted.shape)))

    def missing_measurements(self, nodes: int, workers: int, batch: int) -> str | None:
        """Return what must be measured before this setting can be predicted, or None if nothing is missing."""
        if not self.form.has_batch_term and batch not in set(self.rows.batch):
            return "rows of a second batch per worker"
        if workers == 1:
            return None if self._has_single_worker or self.is_compute_identified() else "rows of one worker"
        ring_sizes = self._ring_sizes[nodes > 1]
        where = "on several nodes" if nodes > 1 else "within one node"
        if not ring_sizes:
            return f"rows of several workers {where}"
        has_alpha = len(self.form.between_terms if nodes > 1 else self.form.local_terms) > 1
        return None if has_alpha or workers in ring_sizes else f"rows of another number of workers {where}"

    @cached_property
    def _ring_sizes(self) -> dict[bool, set[int]]:
        """Numbers of several workers that were timed, by whether they ran on several nodes."""
        return {several: set(self.rows.workers[(self.rows.nodes > 1) == several]) - {1} for several in (False, True)}

    @cached_property
    def _has_single_worker(self) -> bool:
        return bool((self.rows.workers == 1).any())

    def is_compute_identified(self) -> bool:
        """Return whether the fit separates computing from the exchange even if no row has one worker."""
        return "alpha" in self.form.local_terms or "alpha" in self.form.between_terms

    @property
    def identifiable(self) -> bool:
        """Whether the fit can predict computing and each measured kind of exchange beyond the measured settings."""
        single = self.rows.nodes == 1
        exchanges = [(self.form.local_terms, single & (self.rows.workers > 1)), (self.form.between_terms, ~single)]
        return self.form.has_batch_term and all(len(terms) > 1 for terms, measured in exchanges if measured.any())


def fit_step_time(rows: pd.DataFrame, exchanges: pd.DataFrame = NO_EXCHANGES) -> StepTimeFit:
    """Fit the step time model to rows of nodes, workers, batch and seconds, without waits for readers.

    `exchanges` has rows of nodes, workers, kind (sum or message), share (of the gradient's bytes) and seconds.
    """
    pace_sd = float(rows.pace_sd.median()) if "pace_sd" in rows else 0.0
    gradient_bytes = float(rows.gradient_bytes.median()) if "gradient_bytes" in rows else None
    loading_per_example = fit_loading_seconds(rows)
    busy_rows, rows = (summarize_settings(table) for table in (remove_waits(rows), rows))
    form, held_out_error = select_form(busy_rows, exchanges)
    parameters = fit_form(form, busy_rows, exchanges)
    error = mean_relative_error(form, parameters, busy_rows) if held_out_error is None else held_out_error
    return StepTimeFit(
        form=form,
        parameters=parameters,
        relative_error=error,
        rows=rows,
        parameter_draws=bootstrap_parameters(form, parameters, busy_rows, exchanges),
        residuals=inflate_residuals(log_residuals(form, parameters, busy_rows), form),
        pace_sd=pace_sd,
        gradient_bytes=gradient_bytes,
        loading_per_example=loading_per_example,
    )


def summarize_settings(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the median seconds of each setting of nodes, workers and batch."""
    return rows.groupby(["nodes", "workers", "batch"])["seconds"].median().reset_index()


def list_candidate_forms(rows: pd.DataFrame, exchanges: pd.DataFrame = NO_EXCHANGES) -> list[StepTimeForm]:
    """List the forms whose parameters the rows can identify, the simplest first."""
    local = find_identifiable_terms(rows[rows.nodes == 1], rows, exchanges[exchanges.nodes == 1])
    between = find_identifiable_terms(rows[rows.nodes > 1], rows, exchanges[exchanges.nodes > 1])
    simplest = StepTimeForm(local_terms=local, between_terms=between, has_batch_term=rows.batch.nunique() > 1)
    num_timings = len(rows) + len(select_exchanges(simplest, exchanges))
    forms = [simplest]
    if num_timings > len(simplest.parameter_names) + 1 and rows.batch.nunique() > 2 and (rows.workers > 1).any():
        forms.append(simplest._replace(has_overlap=True))
    if between and rows.nodes[rows.nodes > 1].nunique() > 1:
        workers_per_node = np.ceil(rows.workers.to_numpy() / rows.nodes.to_numpy())
        num_sizes = len(set(workers_per_node[workers_per_node > 1]))
        terms = ("alpha", "volume") if num_sizes > 1 else ("volume",) if num_sizes else ()
        forms += [form._replace(two_rings=True, local_terms=terms) for form in list(forms)]
    return [form for form in forms if num_timings >= len(form.parameter_names)] or [simplest]


def find_identifiable_terms(level_rows: pd.DataFrame, rows: pd.DataFrame, exchanges: pd.DataFrame) -> tuple[str, ...]:
    """Return the exchange parameters that the rows of one network level identify.

    Alpha and volume both need two ring sizes, with rows of one worker or a third size beside them, or exchanges whose
    bytes differ enough.
    """
    num_sizes = level_rows.workers[level_rows.workers > 1].nunique()
    if not num_sizes:
        return ()
    bytes_differ = len(exchanges) and exchanges.share.max() >= MIN_BYTES_RATIO * exchanges.share.min()
    both = bytes_differ or num_sizes > 2 or (num_sizes == 2 and (rows.workers == 1).any())
    return ("alpha", "volume") if both else ("volume",)


def select_form(rows: pd.DataFrame, exchanges: pd.DataFrame) -> tuple[StepTimeForm, float | None]:
    """Return the form that best predicts the rows of the most workers from the others, and its error there.

    The error is None where there are too few rows to hold any out.
    """
    worker_counts = sorted(rows.workers.unique())
    forms = list_candidate_forms(rows, exchanges)
    if len(worker_counts) > 2:
        threshold = worker_counts[-(len(worker_counts) // 3)]
        kept, held_out = rows[rows.workers < threshold], rows[rows.workers >= threshold]
        kept_exchanges = exchanges[exchanges.workers < threshold]
        max_parameters = len(kept) + len(kept_exchanges) - MIN_SPARE_ROWS
        candidates = [
            form
            for form in list_candidate_forms(kept, kept_exchanges)
            if form in forms and len(form.parameter_names) <= max_parameters
        ]
        errors = {
            form: mean_relative_error(form, fit_form(form, kept, kept_exchanges), held_out) for form in candidates
        }
        if errors:
            best = min(errors, key=lambda form: errors[form])
            return best, errors[best]
    richest = forms[-1]
    has_spare_rows = len(rows) + len(exchanges) > MIN_SPARE_ROWS + len(richest.parameter_names)
    return richest if has_spare_rows else forms[0], None


def bootstrap_parameters(
    form: StepTimeForm, parameters: dict[str, float], rows: pd.DataFrame, exchanges: pd.DataFrame
) -> list[dict[str, float]]:
    """Return the parameters refitted to bootstrap draws of the rows and exchanges.

    Whole groups of rows (equal nodes and workers) are resampled where there are enough: rows of one group share its
    peculiarities, such as its place in the network, so that resampling single rows would make intervals too narrow.
    """
    rng, exchanges = np.random.default_rng(0), select_exchanges(form, exchanges)
    measured = FitRows.from_tables(form, rows, exchanges)
    groups = list_groups(rows)
    errors = inflate_residuals(log_residuals(form, parameters, rows), form)
    exchange_errors = measured.exchanges.log_residuals(form, parameters)
    draws = []
    for _ in range(STEP_TIME_BOOTSTRAP_DRAWS):
        if len(groups) > 2 * len(form.parameter_names):
            order = np.concatenate([groups[i] for i in rng.integers(0, len(groups), len(groups))])
            drawn, drawn_table = measured.select(order), rows.iloc[order]
        else:  # too few groups to leave any out: add resampled residuals to all rows
            drawn, drawn_table = measured.shift(rng.choice(errors, len(rows))), rows
        if len(exchange_errors):
            drawn = drawn.shift_exchanges(rng.choice(exchange_errors, len(exchange_errors)))
        identifiable = is_still_identifiable(form, drawn_table, exchanges)
        draws.append(fit_rows(form, drawn, parameters) if identifiable else parameters)
    return draws


def list_groups(rows: pd.DataFrame) -> list[IntArray]:
    """List the positions of the rows of each number of nodes and workers."""
    group_numbers = rows.groupby(["nodes", "workers"]).ngroup().to_numpy()
    return [np.flatnonzero(group_numbers == number) for number in range(group_numbers.max() + 1)]


def is_still_identifiable(form: StepTimeForm, rows: pd.DataFrame, exchanges: pd.DataFrame) -> bool:
    """Return whether a bootstrap draw of rows still identifies all parameters of the form."""
    between, local = rows[rows.nodes > 1], rows[(rows.nodes == 1) & (rows.workers > 1)]
    level_rows = {"between": between, "local": rows if form.two_rings else local}
    has_exchanges = {"between": (exchanges.nodes > 1).any(), "local": (exchanges.nodes == 1).any()}
    level_terms = {"between": form.between_terms, "local": form.local_terms}
    return rows.batch.nunique() > form.has_batch_term and all(
        has_exchanges[level] or level_rows[level].workers.nunique() >= len(terms)
        for level, terms in level_terms.items()
        if terms
    )
