"""Panel of known conditions, such as two lights: their shares of the images of a stream over time."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from dashboards.page import Panel, Table
from dashboards.panels.drift_words import EXAMPLE_WORDS, ExampleWords
from dashboards.theme import NEUTRAL_COLOR, SERIES_COLORS, apply_theme
from equipoise.drift.diagnosis.verdict import ChartHistory, Verdict
from equipoise.formatting import format_share
from equipoise.type_aliases import FloatArray

MAX_STRETCHES = 48  # of images, for each of which the shares are averaged
MAX_CONDITION_AREAS = len(SERIES_COLORS)  # with more conditions, the rarest share one area: no two of one colour
OTHER_CONDITIONS = "other conditions"


def build_condition_panel(verdict: Verdict, chart_history: ChartHistory | None, prefix: str) -> Panel | None:
    """Build the panel of the shares of known conditions; None where one is known or less than two steps were made."""
    if not chart_history or len(chart_history.conditions) < 2 or len(chart_history.image_numbers) < 2:
        return None
    words = EXAMPLE_WORDS[verdict.kind]
    rows = [[name, format_share(share)] for name, share in verdict.conditions.items()]
    return Panel(
        name=f"{prefix}conditions-panel",
        figure=condition_shares_figure(chart_history, words),
        caption=f"Share of each known condition in the {words.plural} answered.",
        reading=words.reading_of_conditions,
        data_table=Table(
            name=f"{prefix}conditions", columns=["condition", f"share of the verdict's {words.plural}"], rows=rows
        ),
    )


def condition_shares_figure(chart_history: ChartHistory, words: ExampleWords) -> go.Figure:
    """Draw the shares of known conditions over the answered examples, as areas that add up to 100 %."""
    names, starts = list(chart_history.conditions), stretch_starts(len(chart_history.image_numbers))
    image_numbers = np.array(chart_history.image_numbers)
    shares = average_shares(np.array([chart_history.conditions[name] for name in names]), image_numbers, starts)
    edges = image_numbers[[*starts - 1, -1]]
    figure = go.Figure()
    for name, values, color in merge_rare_conditions(names, shares):
        figure.add_scatter(
            x=edges,
            y=np.append(values, values[-1]),  # of the last stretch, so that it reaches the last edge
            mode="lines",
            line={"color": color, "shape": "hv", "width": 1},
            stackgroup="conditions",
            name=name,
            hovertemplate="%{y:.0%}",
        )
    figure.update_xaxes(title_text=words.number_axis, range=[int(edges[0]), int(edges[-1])])
    figure.update_yaxes(title_text=f"share of {words.plural}", tickformat=".0%", range=[0, 1])
    return apply_theme(figure, 300).update_layout(hovermode="x unified", legend_traceorder="normal")


def stretch_starts(step_count: int) -> NDArray[np.int64]:
    """Return the index of the first step of each stretch; the first step of a history only says where it begins."""
    return np.unique(np.linspace(1, step_count, MAX_STRETCHES, endpoint=False).astype(np.int64))


def average_shares(shares: FloatArray, image_numbers: NDArray[np.int64], starts: NDArray[np.int64]) -> FloatArray:
    """Return the shares (conditions, stretches) of all images of a stretch, from those of its steps."""
    image_counts = np.maximum(np.diff(image_numbers), 1)
    sums = np.add.reduceat(shares[:, 1:] * image_counts, starts - 1, axis=1)
    return np.asarray(sums / np.add.reduceat(image_counts, starts - 1))


def merge_rare_conditions(names: Sequence[str], shares: FloatArray) -> list[tuple[str, FloatArray, str]]:
    """Return each area with its name, shares and colour; of too many conditions, the rarest become one area."""
    by_frequency = sorted(range(len(names)), key=lambda index: -float(shares[index].mean()))
    kept = sorted(by_frequency[:MAX_CONDITION_AREAS])
    areas = [(names[index], shares[index], color) for index, color in zip(kept, SERIES_COLORS, strict=False)]
    if rare := by_frequency[MAX_CONDITION_AREAS:]:
        areas.append((OTHER_CONDITIONS, shares[rare].sum(0), NEUTRAL_COLOR))
    return areas
