"""Labels of axes that many panels share: batch sizes and workers on a logarithmic axis."""

from collections.abc import Iterable, Sequence

import plotly.graph_objects as go

MIN_TICK_RATIO = 1.3  # between the values of two ticks, whose labels would overlap otherwise
MAX_TICKS = 8  # for which there is room on a phone


def thin_ticks(values: Sequence[int]) -> list[int]:
    """Return the values, in ascending order, whose tick labels do not overlap on a logarithmic axis."""
    ticks = keep_apart(values, MIN_TICK_RATIO)
    return ticks if len(ticks) <= MAX_TICKS else keep_apart(ticks, (ticks[-1] / ticks[0]) ** (1 / MAX_TICKS))


def keep_apart(values: Sequence[int], ratio: float) -> list[int]:
    """Return the values, in ascending order, each of which is at least `ratio` times the one before."""
    kept: list[int] = []
    for value in values:
        if not kept or value >= ratio * kept[-1]:
            kept.append(value)
    return kept


def label_batches(figure: go.Figure, values: Iterable[int], title: str) -> None:
    """Make the x axes of a figure logarithmic, with ticks at its batch sizes or numbers of workers."""
    ticks = thin_ticks(sorted(values))
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{tick:,.0f}" for tick in ticks], title_text=title)
