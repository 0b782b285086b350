"""Panel of the critical batch over the target, of a sweep to several targets."""

import plotly.graph_objects as go

from dashboards.page import NumberCell, Panel, Table
from dashboards.theme import (
    AMBER,
    BLUE,
    NEUTRAL_COLOR,
    apply_theme,
    format_examples_interval,
    format_interval,
    format_significant,
    series_symbol,
    set_log_axis,
)
from equipoise.formatting import capitalize_first
from equipoise.planning.document import PlanDocument, TargetPlan

PANEL_HEIGHT_PIXELS = 300
READING_OF_TARGETS = (
    "Training goes to the right, to harder targets. A circle is the critical batch up to a target, at which trials need"
    " twice the fewest examples; bars are 80 % intervals. A star is the global batch of the fastest plan to this"
    " target, which depends on the time of a step too. All targets are crossings of the same trials."
)


def critical_batch_figure(document: PlanDocument) -> go.Figure:
    """Draw the critical batch with its interval, and the global batch of the plan, by target."""
    figure = go.Figure()
    estimates = [(entry.target, entry.critical_batch) for entry in document.targets if entry.critical_batch]
    values = [estimate.value for _, estimate in estimates]
    figure.add_scatter(
        x=[target for target, _ in estimates],
        y=values,
        error_y={
            "array": [estimate.high - estimate.value for _, estimate in estimates],
            "arrayminus": [estimate.value - estimate.low for _, estimate in estimates],
            "thickness": 1,
        },
        mode="lines+markers",
        line={"color": BLUE, "dash": "dot"},
        marker={"symbol": series_symbol(0, measured=False), "size": 9},
        text=[format_examples_interval(estimate, *document.unit) for _, estimate in estimates],
        hovertemplate="%{text}",
        name="critical batch",
    )
    planned = [(entry.target, entry.plan) for entry in document.targets if entry.plan]
    figure.add_scatter(
        x=[target for target, _ in planned],
        y=[plan.global_batch for _, plan in planned],
        mode="markers",
        marker={"symbol": "star", "size": 14, "color": AMBER, "line": {"width": 1, "color": NEUTRAL_COLOR}},
        hovertemplate="%{y:,} examples",
        name="global batch of the plan",
    )
    bounds = [bound for _, estimate in estimates for bound in (estimate.low, estimate.high)]
    set_log_axis(figure, "y", [*bounds, *(plan.global_batch for _, plan in planned)], "examples")
    targets = [entry.target for entry in document.targets]
    figure.update_xaxes(
        tickvals=targets,
        ticktext=[f"{target:g}" for target in targets],
        title_text="target",
        autorange="reversed" if targets[0] > targets[-1] else True,
    )
    return apply_theme(figure, PANEL_HEIGHT_PIXELS)


def build_targets_panel(document: PlanDocument) -> Panel | None:
    """Build the panel of several targets; None if fewer than two of them have a critical batch."""
    if sum(entry.critical_batch is not None for entry in document.targets) < 2:
        return None
    caption = "The critical batch over the target, and the batch of the fastest plan to each."
    if schedule := document.schedule:
        caption += (
            f" A batch that grows on the way: {schedule.describe_gain()}. {capitalize_first('it ' + schedule.note)}."
        )
    return Panel(
        name="targets",
        figure=critical_batch_figure(document),
        caption=caption,
        reading=READING_OF_TARGETS,
        data_table=targets_table(document),
    )


def targets_table(document: PlanDocument) -> Table:
    """Return the table of all targets, the easiest first."""
    columns = ["target", "critical batch", "fewest examples", "runs that reached it"]
    columns += ["workers of the plan", "batch per worker", "predicted s"]
    rows = [
        [
            NumberCell(entry.target, f"{entry.target:g}"),
            format_examples_interval(entry.critical_batch, *document.unit),
            format_interval(entry.min_examples),
            entry.reached,
            *plan_cells(entry),
        ]
        for entry in document.targets
    ]
    return Table(name="targets-table", columns=columns, rows=rows)


def plan_cells(entry: TargetPlan) -> tuple[int | None, int | None, NumberCell | None]:
    """Return workers, batch per worker and predicted seconds of the plan for a target; None without a plan."""
    if entry.plan is None:
        return None, None, None
    seconds = entry.plan.seconds.value
    return entry.plan.workers, entry.plan.batch, NumberCell(seconds, format_significant(seconds))
