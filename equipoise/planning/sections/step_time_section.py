"""Section of plan.json on step times: predictions at each setting, the network's links, and what is missing."""

import numpy as np
import pandas as pd

from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.plan import ClusterShape
from equipoise.planning.sections.step_time_types import NetworkLink, StepTimePrediction, StepTimeSection
from equipoise.planning.step_time_fit import INTERVAL_QUANTILES, StepTimeFit
from equipoise.planning.step_time_model import NETWORK_LEVELS, StepSettings


def build_system_section(step_time_fit: StepTimeFit, extra_shapes: tuple[ClusterShape, ...]) -> StepTimeSection:
    """Build the section on step times: predictions at each row, and at each extra shape with each timed batch."""
    predictions, gaps = predict_step_times(step_time_fit, extra_shapes)
    gaps += [] if step_time_fit.identifiable else describe_missing_measurements(step_time_fit)
    return StepTimeSection(
        identifiable=step_time_fit.identifiable and not gaps,
        missing=tuple(sorted(set(gaps))),
        parameters={name: float(value) for name, value in step_time_fit.parameters.items()},
        links={
            level: fit_network_link(step_time_fit, level)
            for level in NETWORK_LEVELS
            if f"{level}_volume" in step_time_fit.parameters
        },
        form="two rings" if step_time_fit.form.two_rings else "ring",
        error=float(step_time_fit.relative_error),
        predictions=tuple(predictions),
    )


def predict_step_times(
    step_time_fit: StepTimeFit, extra_shapes: tuple[ClusterShape, ...]
) -> tuple[list[StepTimePrediction], list[str]]:
    """Predict the step times of all rows and extra shapes; return also the measurements that some of them need."""
    rows = step_time_fit.rows[["nodes", "workers", "batch"]].astype(int)
    measured = set(rows.itertuples(index=False, name=None))
    requested = {(*shape, batch) for shape in extra_shapes for batch in rows.batch.unique().tolist()}
    points = pd.DataFrame(sorted(measured | requested), columns=["nodes", "workers", "batch"])
    settings = StepSettings.from_table(points)
    values = step_time_fit.fitted_seconds(settings)
    bounds = np.quantile(step_time_fit.sample_seconds(settings), INTERVAL_QUANTILES, axis=0)
    predictions, gaps = [], []
    for point, *numbers in zip(points.itertuples(index=False, name=None), values, *bounds, strict=True):
        gap = step_time_fit.missing_measurements(*point) if point not in measured else None
        gaps += [gap] if gap else []
        seconds, low, high = (None if gap else float(number) for number in numbers)
        nodes, workers, batch = point
        predictions.append(
            StepTimePrediction(
                nodes=nodes,
                workers=workers,
                batch=batch,
                seconds=seconds,
                low=low,
                high=high,
                measured=point in measured,
            )
        )
    return predictions, gaps


def fit_network_link(step_time_fit: StepTimeFit, level: str) -> NetworkLink:
    """Estimate the delay and the rate of one network level, as far as they are known."""
    draws = pd.DataFrame([*step_time_fit.parameter_draws, step_time_fit.parameters])
    alpha, size = f"{level}_alpha", step_time_fit.gradient_bytes
    return NetworkLink(
        alpha_seconds=summarize_draws(draws[alpha]) if alpha in draws else None,
        bytes_a_second=summarize_draws(size / draws[f"{level}_volume"]) if size else None,
    )


def summarize_draws(draws: "pd.Series[float]") -> IntervalEstimate:
    """Return the last value, which is the estimate, with the interval of the draws before it."""
    low, high = np.quantile(draws.iloc[:-1], INTERVAL_QUANTILES)
    return IntervalEstimate(value=float(draws.iloc[-1]), low=float(low), high=float(high))


def describe_missing_measurements(step_time_fit: StepTimeFit) -> list[str]:
    """List the timings that predictions for larger clusters than the measured ones still need."""
    rows, batch = step_time_fit.rows, int(step_time_fit.rows.batch.min())
    gaps = [] if step_time_fit.form.has_batch_term else ["rows of a second batch per worker"]
    for _, level_rows in rows[rows.workers > 1].groupby(rows.nodes > 1):
        gap = step_time_fit.missing_measurements(int(level_rows.nodes.max()), 2 * int(level_rows.workers.max()), batch)
        gaps += [gap] if gap else []
    return gaps
