"""The trade-off: time of an example, examples to the target, and their product, over the batch.

Of plan.json and the two tables that it was made from; either may be missing.
"""

from collections.abc import Iterable

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboards import theme as style
from dashboards.page import Panel, Table
from dashboards.panels import pareto_front as front
from dashboards.plan_tables import Facts, needs, options, place, rates, runs, series, steps, timed

ROWS = ("time of an example", "examples to the target", "time to the target")
EVERY = 1.3  # a factor between two batches, below which ticks would touch
MOST = 6  # places with a line each: more would have no colours of their own


def curves(facts: Facts, system: pd.DataFrame | None, trials: pd.DataFrame | None) -> go.Figure:
    """The three panels, one above the other, over the global batch."""
    figure = make_subplots(rows=3, shared_xaxes=True, vertical_spacing=0.07, subplot_titles=ROWS)
    predicted, plans = steps(facts), options(facts)
    known = series(timed(system)) if system is not None else {}
    places, fits, times = shown(facts) or [*known][:MOST], series(predicted), series(plans)
    for at, one in enumerate(places):
        name = place(*one)
        if one in fits:
            banded(figure, 1, fits[one], "seconds", at, name, 1000)
        if one in known:
            marked(figure, known[one], at, name, one not in fits)
        if one in times:
            products(figure, times[one], at, name)
    if trials is not None:
        seen(figure, runs(trials))
    if facts["statistical"]:
        banded(figure, 2, needs(facts), "examples", len(places), "fit", 1)
    if facts["plan"]:
        optimum(figure, facts["plan"])
    units = ("ms of an example", "examples", "seconds")
    steps_taken = [*predicted.seconds, *(value for one in known.values() for value in one.seconds)]
    taught = [*needs(facts).examples, *(trials.examples if trials is not None else ())]
    columns: tuple[Iterable[float], ...] = ([1000 * value for value in steps_taken], taught, plans.seconds)
    for row, (unit, values) in enumerate(zip(units, columns, strict=True), 1):
        style.logarithmic(figure, "y", values, unit, row=row, col=1)
    figure.update_xaxes(type="log", showspikes=True, spikemode="across", spikethickness=1)
    tables = [predicted, needs(facts), plans, *known.values(), *([trials] if trials is not None else [])]
    batches = sorted({batch for table in tables for batch in table.global_batch})
    figure.update_xaxes(tickvals=apart(batches), ticktext=[f"{batch:,.0f}" for batch in apart(batches)])
    figure.update_xaxes(title_text="global batch, examples", row=3, col=1)
    return style.styled(figure, 860).update_layout(hovermode="x", legend={"y": 1.04})


def shown(facts: Facts) -> list[tuple[int, int]]:
    """Places that get a line: all if they are few, otherwise those of the front, the plan's first, and the smallest."""
    chosen = [(one["nodes"], one["workers"]) for one in [facts["plan"], *facts["front"]] if one]
    every = [*series(steps(facts)), *series(options(facts))]
    return sorted([*dict.fromkeys([*chosen, *sorted(every)])][:MOST])


def apart(batches: list[int]) -> list[int]:
    """Batches whose ticks do not touch."""
    found: list[int] = []
    for batch in batches:
        if not found or batch >= EVERY * found[-1]:
            found.append(batch)
    return found


def banded(figure: go.Figure, row: int, here: pd.DataFrame, name: str, at: int, words: str, by: float) -> None:
    """A line and its interval."""
    shade = style.colour(at)
    sides = here.dropna(subset=["low", "high"])
    figure.add_scatter(
        x=[*sides.global_batch, *sides.global_batch[::-1]],
        y=[*sides.high * by, *sides.low[::-1] * by],
        mode="lines",
        fill="toself",
        fillcolor=style.faint(shade),
        line_width=0,
        hoverinfo="skip",
        showlegend=False,
        name=f"{words}, interval",
        row=row,
        col=1,
    )
    figure.add_scatter(
        x=here.global_batch,
        y=here[name] * by,
        mode="lines",
        line={"color": shade, "dash": "dot"},
        name=words,
        legendgroup=words,
        hovertemplate="%{y:.3g} predicted",
        row=row,
        col=1,
    )


def marked(figure: go.Figure, here: pd.DataFrame, at: int, words: str, alone: bool) -> None:
    """Steps that were timed; `alone` where no line says whose they are."""
    figure.add_scatter(
        x=here.global_batch,
        y=here.seconds * 1000,
        mode="markers",
        marker={"color": style.colour(at), "symbol": style.symbol(at), "size": 8},
        name=words,
        legendgroup=words,
        showlegend=alone,
        hovertemplate="%{y:.3g} measured",
        row=1,
        col=1,
    )


def seen(figure: go.Figure, trials: pd.DataFrame) -> None:
    """Trials at the best rate of their batch; an arrow upwards where the target was not reached."""
    best = trials[trials.best]
    kinds = (("trials", best[best.reached == 1], "circle"), ("not reached", best[best.reached == 0], "triangle-up"))
    for words, here, symbol in kinds:
        marker = {"color": style.GREY, "symbol": symbol, "size": 7}
        hover = [f"lr {lr:.3g}, seed {seed}" for lr, seed in zip(here.lr, here.seed, strict=True)]
        figure.add_scatter(
            x=here.global_batch, y=here.examples, mode="markers", marker=marker, name=words, text=hover, row=2, col=1
        )


def products(figure: go.Figure, here: pd.DataFrame, at: int, name: str) -> None:
    """Time to the target of one place, with its interval: filled marks where both factors were measured."""
    symbols = [style.symbol(at, bool(measured)) for measured in here.measured]
    figure.add_scatter(
        x=here.global_batch,
        y=here.seconds,
        error_y={"array": here.high - here.seconds, "arrayminus": here.seconds - here.low, "thickness": 1},
        mode="lines+markers",
        line={"color": style.colour(at), "width": 1},
        marker={"symbol": symbols, "size": 8},
        name=name,
        legendgroup=name,
        showlegend=False,
        row=3,
        col=1,
    )


def optimum(figure: go.Figure, plan: Facts) -> None:
    """The plan."""
    figure.add_scatter(
        x=[plan["global_batch"]],
        y=[plan["seconds"]["value"]],
        mode="markers",
        marker={"symbol": "star", "size": 18, "color": style.AMBER, "line": {"width": 1, "color": style.GREY}},
        name="the plan",
        row=3,
        col=1,
    )
    figure.add_vline(plan["global_batch"], line={"dash": "dash", "width": 1, "color": style.GREY})


def lr(trials: pd.DataFrame) -> go.Figure:
    """Learning rates that were tried at each batch; the best is joined, hollow where it is the last that was tried."""
    table, figure = rates(trials), go.Figure()
    known = table.best & (table.reached > 0)
    tried, best = table[~known], table[known]
    figure.add_scatter(
        x=tried.global_batch,
        y=tried.lr,
        mode="markers",
        marker={"color": style.GREY, "size": 7, "symbol": ["circle" if one > 0 else "x" for one in tried.reached]},
        text=[told(*one) for one in zip(tried.more, tried.reached, tried.trials, strict=True)],
        name="tried",
    )
    figure.add_scatter(
        x=best.global_batch,
        y=best.lr,
        mode="lines+markers",
        line_color=style.BLUE,
        marker={"size": 11, "symbol": ["circle" if one else "circle-open" for one in best.inside]},
        text=["rates on both sides were tried" if one else "the last rate that was tried" for one in best.inside],
        name="best",
    )
    figure.update_xaxes(title_text="global batch, examples", type="log")
    style.logarithmic(figure, "y", table.lr, "learning rate")
    batches = apart(sorted(table.global_batch.unique()))
    return style.styled(figure.update_xaxes(tickvals=batches, ticktext=[f"{batch:,.0f}" for batch in batches]))


def told(more: float, reached: float, trials: int) -> str:
    """A rate that is not the best."""
    if not reached:
        return f"{trials} trial{'s' * (trials > 1)}, none reached the target"
    return f"{more:.2f} of the best's examples ({trials} trial{'s' * (trials > 1)}, {reached:.0%} reached)"


def panels(facts: Facts, system: pd.DataFrame | None, trials: pd.DataFrame | None) -> list[Panel]:
    """All that can be drawn of what is there."""
    found = []
    if facts["system"] or facts["statistical"] or system is not None or trials is not None:
        says = (
            "A larger batch takes less time an example and needs more examples; their product, the time to the target,"
            " has a lowest point. Filled marks were measured, dotted lines and hollow marks predicted; bands and bars"
            " hold four of five."
        )
        found.append(Panel(name="curves", figure=curves(facts, system, trials), says=says, numbers=numbers(facts)))
    if facts["front"]:
        says = "Each point is a plan; no other is faster and cheaper than one of the front. Hollow ones are predicted."
        found.append(Panel(name="front", figure=front.front(facts), says=says, slider=front.deadline(facts)))
        says = "Seconds to the target for workers and the batch of each; dark blue is fast."
        found.append(Panel(name="heat", figure=front.heat(facts), says=says))
    if trials is not None and (pd.to_numeric(trials.lr, errors="coerce") > 0).any():
        says = "The best learning rate of each batch; hollow where it is the last that was tried on its side."
        found.append(Panel(name="rates", figure=lr(trials), says=says))
    return found


def numbers(facts: Facts) -> Table | None:
    """Every plan, the fastest first."""
    plans = options(facts).sort_values("seconds")
    if plans.empty:
        return None
    columns = ["nodes", "workers", "batch", "global_batch", "lr", "seconds", "low", "high", "worker_seconds", "binding"]
    rows = [[None if pd.isna(value) else value for value in row] for row in plans[columns].itertuples(index=False)]
    return Table(name="plans", columns=[column.replace("_", " ") for column in columns], rows=rows)
