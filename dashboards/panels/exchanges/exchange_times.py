"""Panel of the time to the target by way of exchange, exact sums first, each with its interval."""

from collections.abc import Sequence

import plotly.graph_objects as go

from dashboards.page import NumberCell, Panel, Table, TableCell
from dashboards.panels.exchanges.best_exchange_map import MAP_HEIGHT_PIXELS
from dashboards.panels.exchanges.time_estimates import (
    TimeEstimate,
    find_plan_estimate,
    label_exchange,
    list_time_estimates,
)
from dashboards.panels.tradeoff_traces import RUN_SYMBOLS
from dashboards.plan_confirmation import describe_run
from dashboards.plan_tables import format_cluster_shape
from dashboards.theme import (
    AMBER,
    BLUE,
    GREEN,
    NEUTRAL_COLOR,
    apply_theme,
    format_interval,
    format_seconds,
    format_significant,
    format_time_interval,
    set_log_axis,
)
from equipoise.formatting import format_bytes
from equipoise.planning.document import PlanDocument
from equipoise.planning.exchange_choice.exchange_verdict import ExchangeVerdict

RUN_COLOR = GREEN
BOUND_STYLE = "bound, no sooner than"
ROW_PIXELS, FRAME_PIXELS = 36, 130
READING_OF_TIMES = (
    "Time runs to the right. Filled marks combine step times and examples that were both measured, hollow ones need a"
    " prediction. Bars are 80 % intervals: of exact sums that of a single run, of others that of the average of runs. A"
    " triangle is a bound: the time of a way of exchange that needs no more examples than exact sums. It can be no"
    " sooner, so that one close to exact sums is not worth a trial. The star is the way of exchange of the plan. Six"
    " points are a training run that confirmed its plan, a cross is one that refuted it."
)
STYLES: dict[str, dict[str, str | int]] = {
    "measured": {"symbol": "circle", "size": 9},
    "predicted": {"symbol": "circle-open", "size": 9},
    BOUND_STYLE: {"symbol": "triangle-right-open", "size": 11},
}


def name_style(estimate: TimeEstimate) -> str:
    """Return in which way an estimate is drawn."""
    if estimate.is_bound:
        return BOUND_STYLE
    return "measured" if estimate.is_measured else "predicted"


def exchange_times_figure(document: PlanDocument, height: int | None = None) -> go.Figure:
    """Draw the time to the target with its interval by way of exchange, and the one of the plan."""
    estimates = list_time_estimates(document)
    figure = go.Figure()
    if chosen := find_plan_estimate(document):
        figure.add_scatter(
            x=[chosen.seconds.value],
            y=[label_exchange(chosen.exchange)],
            mode="markers",
            marker={"symbol": "star", "size": 24, "color": AMBER, "line": {"width": 1, "color": NEUTRAL_COLOR}},
            hoverinfo="skip",
            name="the plan",
        )
    for style, marker in STYLES.items():
        rows = [estimate for estimate in estimates if name_style(estimate) == style]
        if rows:
            add_estimates(figure, rows, style, marker)
    add_runs(figure, document, [row.exchange for row in estimates])
    bounds = [bound for row in estimates for bound in (row.seconds.low, row.seconds.high)]
    runs = [run.seconds for run in document.confirmations if run.seconds]
    set_log_axis(figure, "x", [*bounds, *runs], "seconds to the target")
    names = [label_exchange(row.exchange) for row in estimates]
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=names[::-1])
    return apply_theme(figure, height or FRAME_PIXELS + ROW_PIXELS * len(estimates))


def add_estimates(figure: go.Figure, rows: list[TimeEstimate], style: str, marker: dict[str, str | int]) -> None:
    """Draw estimates of one style, with bars of their intervals."""
    texts = [
        f"at best {format_seconds(row.seconds.value)}" if row.is_bound else format_time_interval(row.seconds)
        for row in rows
    ]
    figure.add_scatter(
        x=[row.seconds.value for row in rows],
        y=[label_exchange(row.exchange) for row in rows],
        error_x={
            "array": [row.seconds.high - row.seconds.value for row in rows],
            "arrayminus": [row.seconds.value - row.seconds.low for row in rows],
            "thickness": 1.5,
            "visible": style != BOUND_STYLE,
        },
        mode="markers",
        marker={"color": BLUE, "line_width": 2, **marker},
        text=texts,
        hovertemplate="%{y}: %{text}<extra></extra>",
        name=style,
    )


def add_runs(figure: go.Figure, document: PlanDocument, names: Sequence[str]) -> None:
    """Draw the training runs that confirmed or refuted a plan with these ways of exchange, where they ended."""
    for status, symbol in RUN_SYMBOLS.items():
        runs = [run for run in document.confirmations if run.status == status and run.exchange in names and run.seconds]
        if runs:
            figure.add_scatter(
                x=[run.seconds for run in runs],
                y=[label_exchange(run.exchange) for run in runs],
                mode="markers",
                marker={"symbol": symbol, "size": 11, "color": RUN_COLOR, "line": {"width": 1, "color": NEUTRAL_COLOR}},
                text=[describe_run(run) for run in runs],
                hovertemplate="%{y}: %{text}<extra></extra>",
                name=f"a run, {status}",
            )


def build_times_panel(document: PlanDocument) -> Panel | None:
    """Build the panel of the times by way of exchange; None if fewer than two have a time."""
    if len(list_time_estimates(document)) < 2:
        return None
    height = MAP_HEIGHT_PIXELS if document.exchange_map else None  # beside the map
    return Panel(
        name="exchange-times",
        figure=exchange_times_figure(document, height),
        caption="Time to the target by way of exchange, each at its own best setting.",
        reading=READING_OF_TIMES,
        data_table=times_table(document),
    )


def times_table(document: PlanDocument) -> Table | None:
    """Return the table of the settings of all ways of exchange with their times; None without verdicts."""
    rows = [list_setting_cells(verdict) for verdict in document.exchanges]
    columns = ["exchange", "workers", "batch", "lr", "seconds a step", "to the target", "times sooner", "memory"]
    return Table(name="exchange-settings", columns=columns, rows=rows) if rows else None


def list_setting_cells(verdict: ExchangeVerdict) -> list[TableCell]:
    """Return the cells of the best setting of a way of exchange."""
    seconds, peak = verdict.seconds, verdict.peak_bytes
    return [
        label_exchange(verdict.exchange),
        format_cluster_shape(verdict.nodes, verdict.workers),
        verdict.batch,
        NumberCell(verdict.lr, format_significant(verdict.lr)),
        NumberCell(verdict.step_seconds, format_seconds(verdict.step_seconds)),
        NumberCell(seconds.value if seconds else None, format_time_interval(seconds) if seconds else "-"),
        speedup_cell(verdict),
        NumberCell(peak, "-" if peak is None else format_bytes(peak)),
    ]


def speedup_cell(verdict: ExchangeVerdict) -> NumberCell:
    """Return how many times sooner a way of exchange is than exact sums, or could be at the most."""
    if verdict.speedup:
        return NumberCell(verdict.speedup.value, format_interval(verdict.speedup))
    bound = verdict.max_speedup
    return NumberCell(bound, "-" if bound is None else f"at most {format_significant(bound)}")
