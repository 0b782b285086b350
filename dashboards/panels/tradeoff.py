"""Panels of the trade-off: time per example, examples to the target, and their product, by global batch.

They are drawn from plan.json and the two tables that it was made from; either table may be missing.
"""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboards.page import Panel, Table
from dashboards.panels.critical_batches import build_targets_panel
from dashboards.panels.energy_front import build_energy_panel
from dashboards.panels.learning_rates import build_lr_panel
from dashboards.panels.pareto_front import (
    READING_OF_DEVICES,
    READING_OF_FRONT,
    READING_OF_HEATMAP,
    build_deadline_slider,
    choose_heatmap_unit,
    pareto_figure,
    time_heatmap_figure,
)
from dashboards.panels.tick_labels import label_batches
from dashboards.panels.tradeoff_traces import (
    EXAMPLE_UNIT,
    EXAMPLES_UNIT,
    FIT_COLOR,
    ROW_UNITS,
    TARGET_UNIT,
    add_confirmations,
    add_interval,
    add_measurements,
    add_plan,
    add_time_to_target,
    add_trials,
)
from dashboards.plan_tables import (
    candidate_plans,
    format_cluster_shape,
    group_by_cluster_shape,
    has_cost_in_dollars,
    mark_best_lr,
    measured_step_times,
    predicted_examples,
    predicted_step_times,
    settings_by_device,
)
from dashboards.theme import apply_theme, series_color, set_log_axis, share_x_axis
from equipoise.planning.document import PlanDocument

ROW_PIXELS = 265
MAX_PLOT_LINES = 4  # the palette has two more colours, for the fit and the plan
READING_OF_CURVES = (
    "All rows share the global batch below: the examples that one step averages over. Filled marks were measured;"
    " dotted lines and hollow marks were predicted; bands and bars are 80 % intervals. The star is the plan, at its"
    " predicted time. A run that was made with a plan has another mark, in the colour of its workers, where it"
    " ended: six points where it confirmed the plan, a cross where it refuted it. One that never reached the target is"
    " drawn at the upper end of its interval."
)


def tradeoff_figure(document: PlanDocument, step_times: pd.DataFrame | None, trials: pd.DataFrame | None) -> go.Figure:
    """Draw time per example, examples to the target, and time to the target, one above the other by global batch.

    A row without data is left out.
    """
    predicted, plans = predicted_step_times(document), candidate_plans(document)
    measured = group_by_cluster_shape(measured_step_times(step_times)) if step_times is not None else {}
    examples_fit = predicted_examples(document)
    seconds = [*predicted.seconds, *(value for table in measured.values() for value in table.seconds)]
    examples = [*examples_fit.examples, *(trials.examples if trials is not None else ())]
    values_by_unit: dict[str, list[float]] = {
        EXAMPLE_UNIT: [1000 * value for value in seconds],
        EXAMPLES_UNIT: examples,
        TARGET_UNIT: [*plans.seconds, *([document.plan.seconds.value] if document.plan else [])],
    }
    rows = {unit: row for row, unit in enumerate((unit for unit in ROW_UNITS if values_by_unit[unit]), 1)}
    figure = make_subplots(rows=max(len(rows), 1), shared_xaxes=True, vertical_spacing=0.05)
    shapes, fits, times = (
        shapes_to_draw(document) or [*measured][:MAX_PLOT_LINES],
        group_by_cluster_shape(predicted),
        group_by_cluster_shape(plans),
    )
    for index, shape in enumerate(shapes):
        name = format_cluster_shape(*shape)
        if shape in fits:
            add_interval(figure, rows, EXAMPLE_UNIT, fits[shape], "seconds", series_color(index), name, 1000)
        if shape in measured:
            add_measurements(figure, rows, measured[shape], index, name, shape not in fits)
        if shape in times:
            add_time_to_target(figure, rows, times[shape], index, name)
    if trials is not None:
        add_trials(figure, rows, mark_best_lr(trials))
    if not examples_fit.empty:
        add_interval(figure, rows, EXAMPLES_UNIT, examples_fit, "examples", FIT_COLOR, "examples, fit", 1)
    if document.plan:
        add_plan(figure, rows, document.plan)
    if TARGET_UNIT in rows:
        add_confirmations(figure, rows, document.confirmations, shapes)
    for unit, row in rows.items():
        set_log_axis(figure, "y", values_by_unit[unit], unit, row=row, col=1)
    tables = [predicted, examples_fit, plans, *measured.values(), *([trials] if trials is not None else [])]
    label_batches(figure, {batch for table in tables for batch in table.global_batch}, "global batch, examples")
    return apply_theme(share_x_axis(figure, max(len(rows), 1)), 60 + ROW_PIXELS * max(len(rows), 1))


def shapes_to_draw(document: PlanDocument) -> list[tuple[int, int]]:
    """Return up to `MAX_PLOT_LINES` cluster shapes to draw: that of the plan, of the front, then the smallest."""
    chosen = [(setting.nodes, setting.workers) for setting in (document.plan, *document.front) if setting]
    shapes = [
        *group_by_cluster_shape(predicted_step_times(document)),
        *group_by_cluster_shape(candidate_plans(document)),
    ]
    return sorted([*dict.fromkeys([*chosen, *sorted(shapes)])][:MAX_PLOT_LINES])


def build_tradeoff_panels(
    document: PlanDocument, step_times: pd.DataFrame | None, trials: pd.DataFrame | None
) -> list[Panel]:
    """Build the panels for which there is data."""
    panels = []
    if document.system or document.statistical or step_times is not None or trials is not None:
        caption = (
            "A larger batch takes less time per example but needs more examples; the product, the time to the target,"
            " has a minimum."
        )
        panels.append(
            Panel(
                name="curves",
                figure=tradeoff_figure(document, step_times, trials),
                caption=caption,
                reading=READING_OF_CURVES,
                data_table=plans_table(document),
            )
        )
    if panel := build_targets_panel(document):
        panels.append(panel)
    if document.front:
        slider = build_deadline_slider(document)
        caption = "Each point is a plan; none is both faster and cheaper than one on the front."
        caption += " The slider marks the cheapest plan within a deadline." if slider else ""
        panels.append(
            Panel(
                name="front",
                figure=pareto_figure(document),
                caption=caption,
                reading=READING_OF_FRONT + (READING_OF_DEVICES if document.system and document.system.devices else ""),
                slider=slider,
            )
        )
        if energy_panel := build_energy_panel(document):
            panels.append(energy_panel)
        unit = choose_heatmap_unit(document)[1]
        caption = f"Time to the target in {unit}, by workers and batch size per worker; dark blue is fast."
        panels.append(
            Panel(name="heat", figure=time_heatmap_figure(document), caption=caption, reading=READING_OF_HEATMAP)
        )
    if trials is not None and (panel := build_lr_panel(trials)):
        panels.append(panel)
    return panels


def plans_table(document: PlanDocument) -> Table | None:
    """Return the table of every plan, the fastest first; None without plans."""
    plans = settings_by_device(document.options, has_cost_in_dollars(document))
    if plans.empty:
        return None
    columns = ["nodes", "workers", "batch", "global_batch", "lr", "seconds", "low", "high", "worker_seconds"]
    columns += ["binding", "measured"]
    if has_cost_in_dollars(document):
        plans = plans.rename(columns={"cost": "dollars"})
        columns.append("dollars")
    if document.energy_front:
        joules = [option.joules for option in document.options]
        plans = plans.assign(joules=pd.Series(joules, index=plans.index, dtype=float))
        columns.append("joules")
    plans = plans.sort_values("seconds")
    columns += ["device"] if any(plans.device) else []
    rows = [[None if pd.isna(value) else value for value in row] for row in plans[columns].itertuples(index=False)]
    return Table(name="plans", columns=[column.replace("_", " ") for column in columns], rows=rows)
