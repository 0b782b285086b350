"""Panels of the layers of a model: their seconds in a step, and a roofline with the measured limits of the machine."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from dashboards.page import NumberCell, Panel, Table, TableCell
from dashboards.panels.profiling.step_parts import FRAME_PIXELS, PART_COLORS
from dashboards.theme import BLUE, NEUTRAL_COLOR, apply_theme, format_seconds, format_significant, set_log_axis
from equipoise.formatting import format_bytes, format_share
from equipoise.profiling.profile_report import LayerWork, MachineLimits, ProfileReport

MAX_LAYERS = 24  # drawn, those that take longest; the table has all
LAYER_PIXELS = 22
LINE_POINTS = 60
GIGA = 1e9
READING_OF_LAYERS = (
    "Seconds of a step in the passes of each layer on the first worker: shares are those of traced steps, scaled to"
    " steps without the profiler. What a layer's backward pass takes is that of the nodes that its forward pass made."
)
READING_OF_ROOFLINE = (
    "To the right, operations for each byte that both passes of a layer move at least; upwards, operations per second,"
    " both logarithmic. The line is what this machine reaches at best: a copy in memory on its slope, a product of two"
    " large matrices on its flat. A layer far below the line is held up by something else than either, such as the"
    " calls of many small operations; one on the slope gains from fewer bytes, one on the flat from fewer operations."
)


def sort_layers(report: ProfileReport) -> list[LayerWork]:
    """Return the layers with known seconds, the longest first."""
    timed = [layer for layer in report.layers if layer.seconds]
    return sorted(timed, key=lambda layer: -(layer.seconds or 0.0))


def layer_label(layer: LayerWork) -> str:
    """Return the name of a layer with its class."""
    return f"{layer.name} ({layer.kind})" if layer.name else layer.kind


def layer_seconds_figure(layers: Sequence[LayerWork]) -> go.Figure:
    """Draw the seconds of both passes of each layer."""
    figure = go.Figure()
    for part in ("forward", "backward"):
        figure.add_bar(
            y=[layer_label(layer) for layer in layers],
            x=[1000 * (getattr(layer, f"{part}_seconds") or 0.0) for layer in layers],
            orientation="h",
            name=part,
            marker={"color": PART_COLORS[part], "line_width": 0},
            hovertemplate="%{x:,.3~r} ms",
        )
    figure.update_xaxes(title_text="ms per step")
    figure.update_yaxes(autorange="reversed")
    return apply_theme(figure, FRAME_PIXELS + LAYER_PIXELS * len(layers)).update_layout(barmode="stack")


def roofline_figure(limits: MachineLimits, layers: Sequence[LayerWork], examples: int) -> go.Figure:
    """Draw the rate of each layer over its operations per byte, below the limits of the machine."""
    intensities = [layer.step_flop(examples) / layer.moved_bytes(examples) for layer in layers]
    rates = [layer.step_flop(examples) / (layer.seconds or 1.0) for layer in layers]
    corner = limits.flop_per_second / limits.bytes_per_second
    span = np.geomspace(min([*intensities, corner]) / 2, max([*intensities, corner]) * 4, LINE_POINTS)
    bounds = np.minimum(limits.flop_per_second, span * limits.bytes_per_second)
    figure = go.Figure()
    figure.add_scatter(x=span, y=bounds / GIGA, mode="lines", line={"color": NEUTRAL_COLOR}, name="limit, measured")
    figure.add_scatter(
        x=intensities,
        y=[rate / GIGA for rate in rates],
        mode="markers",
        marker={"color": BLUE, "size": 9},
        text=[layer_label(layer) for layer in layers],
        hovertemplate="%{text}: %{y:,.3~r} billion/s",
        name="layers, measured",
    )
    set_log_axis(figure, "x", span.tolist(), "operations per byte")
    set_log_axis(figure, "y", [*(rate / GIGA for rate in rates), *(bounds / GIGA).tolist()], "billion operations/s")
    return apply_theme(figure)


def step_examples(report: ProfileReport) -> int:
    """Return the examples that one worker's passes take in a step."""
    return report.config.batch_size * report.config.grad_accumulation


def limit_share(report: ProfileReport, layer: LayerWork) -> float | None:
    """Return the rate of a layer as a share of what the limits allow; None where it has no operations or seconds."""
    examples = step_examples(report)
    flop, moved = layer.step_flop(examples), layer.moved_bytes(examples)
    if not report.limits or not flop or not moved or not layer.seconds:
        return None
    return flop / layer.seconds / report.limits.bound_flop_rate(flop, moved)


def build_layer_panels(report: ProfileReport) -> list[Panel]:
    """Build the panels of layers; none where no layer was timed."""
    layers = sort_layers(report)
    if not layers:
        return []
    panels = [
        Panel(
            name="layers",
            figure=layer_seconds_figure(layers[:MAX_LAYERS]),
            caption="Milliseconds of a step in the forward and backward pass of each layer on the first worker.",
            reading=READING_OF_LAYERS,
        )
    ]
    drawn = [layer for layer in layers if limit_share(report, layer) is not None]
    if drawn and report.limits:
        caption = "Rate of each layer over its operations per byte, below the measured limits of this machine."
        figure = roofline_figure(report.limits, drawn, step_examples(report))
        panels.append(Panel(name="roofline", figure=figure, caption=caption, reading=READING_OF_ROOFLINE))
    return panels


def layers_table(report: ProfileReport) -> Table:
    """Return the work of all layers as a table, in the order of the model."""
    columns = ["layer", "class", "operations forward", "backward", "parameters", "moved a step", "time", "of its limit"]
    return Table(name="layer-table", columns=columns, rows=[list_layer_cells(report, row) for row in report.layers])


def list_layer_cells(report: ProfileReport, layer: LayerWork) -> list[TableCell]:
    """List the cells of one layer; operations are those of an example."""
    moved, share = layer.moved_bytes(step_examples(report)), limit_share(report, layer)
    is_counted = any(row.forward_flop for row in report.layers)
    forward, backward = (layer.forward_flop, layer.backward_flop) if is_counted else (None, None)
    return [
        layer.name or "-",
        layer.kind,
        NumberCell(forward, format_significant(forward)),
        NumberCell(backward, format_significant(backward)),
        NumberCell(layer.parameter_bytes, format_bytes(layer.parameter_bytes)),
        NumberCell(moved, format_bytes(moved)),
        NumberCell(layer.seconds, format_seconds(layer.seconds)),
        NumberCell(share, format_share(share)),
    ]
