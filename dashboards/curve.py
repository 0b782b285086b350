"""The trade-off: time of an example, examples to the target, and their product, over the batch.

Of plan.json and the two tables that it was made from; either may be missing.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboards import style
from dashboards.page import Panel, Table

Facts = dict[str, Any]

ROWS = ("time of an example", "examples to the target", "time to the target")
EVERY = 1.3  # a factor between two batches, below which ticks would touch
MOST = 6  # places with a line each: more would have no colours of their own


def steps(facts: Facts) -> pd.DataFrame:
    """Seconds of an example as predicted, with its interval, over places and batches."""
    rows = [row for row in (facts["system"] or {}).get("predictions", []) if row["seconds"] is not None]
    table = pd.DataFrame(rows, columns=["nodes", "workers", "batch", "seconds", "low", "high", "measured"])
    whole = table.workers * table.batch
    for name in ("seconds", "low", "high"):
        table[name] = table[name].astype(float) / whole
    table.insert(3, "global_batch", whole)
    return table


def timed(rows: pd.DataFrame) -> pd.DataFrame:
    """Seconds of an example as measured: rows of system.csv."""
    middle = rows.groupby(["nodes", "workers", "batch"], as_index=False)["seconds"].median()
    whole = middle.workers * middle.batch
    found: pd.DataFrame = middle.assign(global_batch=whole, seconds=middle.seconds / whole)
    return found


def needs(facts: Facts) -> pd.DataFrame:
    """Examples to the target as predicted, with their interval, over the global batch."""
    rows = [row for row in (facts["statistical"] or {}).get("predictions", []) if row["examples"] is not None]
    return pd.DataFrame(rows, columns=["global_batch", "examples", "low", "high", "lr"])


def runs(rows: pd.DataFrame) -> pd.DataFrame:
    """Trials of statistical.csv, and whether each has the learning rate that is best at its batch."""
    keyed = rows.assign(lr=pd.to_numeric(rows.lr, errors="coerce").fillna(0.0))
    found = keyed.assign(best=False)
    for _, here in keyed.groupby("global_batch"):
        found.loc[here.index, "best"] = here.lr == best_rate(here)
    return found


def best_rate(here: pd.DataFrame) -> float:
    """The rate with which the trials of one batch needed least; those that fell short count as what they had seen."""
    score = here.assign(logs=np.log(here.examples.astype(float)), short=1.0 - here.reached)
    by = score.groupby("lr")[["short", "logs"]].mean()
    return float(by.sort_values(["short", "logs"]).index[0])


def options(facts: Facts) -> pd.DataFrame:
    """Every plan that could be told: time to the target with its interval, and what it costs."""
    rows = [
        {**one, **{name: one["seconds"][name] for name in ("low", "high")}, "seconds": one["seconds"]["value"]}
        for one in facts.get("options") or facts["front"]
    ]
    columns = [
        "nodes",
        "workers",
        "batch",
        "global_batch",
        "lr",
        "seconds",
        "low",
        "high",
        "worker_seconds",
        "measured",
    ]
    return pd.DataFrame(rows, columns=[*columns, "binding"])


def series(table: pd.DataFrame) -> dict[tuple[int, int], pd.DataFrame]:
    """By place, each over its batches."""
    ordered = table.sort_values("global_batch")
    places = ordered[["nodes", "workers"]].drop_duplicates().sort_values(["nodes", "workers"]).astype(int)
    return {
        (nodes, workers): ordered[(ordered.nodes == nodes) & (ordered.workers == workers)]
        for nodes, workers in places.itertuples(index=False, name=None)
    }


def place(nodes: int, workers: int) -> str:
    """In words."""
    on = f" on {nodes} nodes" if nodes > 1 else ""
    return f"{workers} worker{'s' * (workers != 1)}{on}"


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


def front(facts: Facts) -> go.Figure:
    """Time against cost; what nothing beats is joined, its knee and the cheapest within a deadline are marked."""
    plans, along = options(facts), options({**facts, "options": facts["front"]})
    figure = go.Figure()
    hover = worded(plans)
    marker = {"color": style.GREY, "symbol": ["circle" if one else "circle-open" for one in plans.measured], "size": 7}
    figure.add_scatter(
        x=plans.seconds, y=plans.worker_seconds, mode="markers", marker=marker, text=hover, name="every plan"
    )
    figure.add_scatter(
        x=along.seconds,
        y=along.worker_seconds,
        mode="lines+markers",
        line_color=style.BLUE,
        text=worded(along),
        name="the front",
    )
    if knee := facts.get("knee"):
        figure.add_scatter(
            x=[knee["seconds"]["value"]],
            y=[knee["worker_seconds"]],
            mode="markers",
            marker={"symbol": "diamond-open", "size": 16, "color": style.ORANGE, "line_width": 2},
            name="its knee",
        )
    figure.add_scatter(
        x=[],
        y=[],
        mode="markers",
        marker={"symbol": "star", "size": 18, "color": style.AMBER, "line": {"width": 1, "color": style.GREY}},
        name="cheapest within the deadline",
    )
    style.logarithmic(figure, "x", plans.seconds, "seconds to the target")
    style.logarithmic(figure, "y", plans.worker_seconds, "worker-seconds")
    return style.styled(figure, 420)


def worded(plans: pd.DataFrame) -> list[str]:
    """Each plan in a few words."""
    rows = zip(plans.nodes, plans.workers, plans.batch, plans.lr, strict=True)
    return [
        f"{place(nodes, workers)} x {batch}" + ("" if lr is None or pd.isna(lr) else f", lr {lr:.3g}")
        for nodes, workers, batch, lr in rows
    ]


def deadline(facts: Facts) -> Facts | None:
    """What a slider chooses among; None where there is no choice."""
    along = options({**facts, "options": facts["front"]})
    if len(along) < 2:
        return None
    plans = [
        {"words": words, "seconds": seconds, "worker_seconds": cost}
        for words, seconds, cost in zip(worded(along), along.seconds, along.worker_seconds, strict=True)
    ]
    low, high = float(along.seconds.min()), float(along.seconds.max())
    start = facts["knee"]["seconds"]["value"] if facts.get("knee") else high
    told = {"label": "a deadline", "plans": plans, "mark": len(front(facts).data) - 1}
    return told | {"low": low * 0.9, "high": high * 1.1, "value": start}


def heat(facts: Facts) -> go.Figure:
    """Time to the target over workers and batch: dark is fast."""
    plans = options(facts).sort_values("nodes").drop_duplicates(["workers", "batch"])
    square = plans.pivot_table(index="workers", columns="batch", values="seconds")
    texts = [["" if np.isnan(value) else style.seconds(value) for value in row] for row in square.to_numpy()]
    values = np.log10(square.to_numpy(dtype=float))
    figure = go.Figure(
        go.Heatmap(
            z=values,
            x=[f"{batch:,}" for batch in square.columns],
            y=[str(workers) for workers in square.index],
            text=texts,
            texttemplate="%{text}",
            textfont={"color": "#ffffff"},
            colorscale=[(0, "#00304d"), (1, "#8a5a00")],
            hovertemplate="%{y} workers x %{x}: %{text}<extra></extra>",
            showscale=False,
            xgap=2,
            ygap=2,
        )
    )
    figure.update_xaxes(title_text="batch of a worker, examples", type="category")
    figure.update_yaxes(title_text="workers", type="category")
    return style.styled(figure, 160 + 44 * len(square))


def rates(trials: pd.DataFrame) -> pd.DataFrame:
    """By batch and learning rate: examples against the best rate there, and whether rates on both sides were tried."""
    keyed = runs(trials)
    rows = []
    for batch, here in keyed[keyed.lr > 0].groupby("global_batch"):
        by = here.assign(logs=np.log(here.examples.astype(float))).groupby("lr")
        means, reached, best = by.logs.mean(), by.reached.mean(), best_rate(here)
        inside = float(means.index.min()) < best < float(means.index.max())
        rows += [
            (batch, lr, float(np.exp(means[lr] - means[best])), reached[lr], len(by.get_group(lr)), lr == best, inside)
            for lr in means.index
        ]
    return pd.DataFrame(rows, columns=["global_batch", "lr", "more", "reached", "trials", "best", "inside"])


def lr(trials: pd.DataFrame) -> go.Figure:
    """Learning rates that were tried at each batch; the best is joined, hollow where it is the last that was tried."""
    table, figure = rates(trials), go.Figure()
    tried, best = table[~table.best], table[table.best]
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
        found.append(Panel(name="front", figure=front(facts), says=says, slider=deadline(facts)))
        says = "Seconds to the target for workers and the batch of each; dark blue is fast."
        found.append(Panel(name="heat", figure=heat(facts), says=says))
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
