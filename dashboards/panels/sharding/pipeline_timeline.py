"""Panel of one step of a pipeline: when each stage computes, and when it stands idle."""

from collections.abc import Sequence

import plotly.graph_objects as go

from dashboards.page import NumberCell, Panel, Table
from dashboards.theme import AMBER, NEUTRAL_COLOR, SKY, apply_theme, format_seconds
from equipoise.config import TrainConfig
from equipoise.runs.pipeline_span import PipelineSpan
from equipoise.runs.record import Record

SPAN_COLORS = {"forward": SKY, "backward": AMBER}
MILLISECONDS = 1000.0
READING_OF_TIMELINE = (
    "Each row is a stage, on a worker of its own, in one step. Bars are the forward and backward passes of"
    " micro-batches, whose numbers are in them; what lies between is the bubble: a stage waits for what its neighbours"
    " send. S equal stages with M micro-batches idle for at least (S - 1)/(M + S - 1) of a step. Clocks of machines"
    " differ, so a stage begins where the one before has computed its first value."
)


def find_timeline(record: Record) -> tuple[PipelineSpan, ...]:
    """Return the spans of the last lap that has some; none of a run without a pipeline."""
    return next((lap.pipeline_spans for lap in reversed(record.laps) if lap.pipeline_spans), ())


def pipeline_figure(spans: Sequence[PipelineSpan]) -> go.Figure:
    """Draw the passes of each stage over the time of a step."""
    figure, stages = go.Figure(), max(span.stage for span in spans) + 1
    for kind, color in SPAN_COLORS.items():
        passes = [span for span in spans if span.kind == kind]
        figure.add_bar(
            y=[name_stage(span.stage) for span in passes],
            x=[(span.end - span.start) * MILLISECONDS for span in passes],
            base=[span.start * MILLISECONDS for span in passes],
            orientation="h",
            name=kind,
            marker={"color": color, "line": {"color": NEUTRAL_COLOR, "width": 1}},
            text=[str(span.micro + 1) for span in passes],
            textposition="inside",
            insidetextanchor="middle",
            constraintext="both",
            customdata=[format_seconds(span.end - span.start) for span in passes],
            hovertemplate=f"{kind} pass of micro-batch %{{text}}: %{{customdata}}",
        )
    figure.update_xaxes(title_text="ms since the step began")
    names = [name_stage(stage) for stage in range(stages)]
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=names[::-1])  # the first stage on top
    return apply_theme(figure, 120 + 60 * stages).update_layout(barmode="overlay", bargap=0.2)


def name_stage(stage: int) -> str:
    """Return the name of a stage, counted from 1."""
    return f"stage {stage + 1}"


def measure_idle_shares(spans: Sequence[PipelineSpan]) -> list[float]:
    """Return the share of a step in which each stage computes no pass, from the first pass of all to the last."""
    passes = [span for span in spans if span.kind != "wait"]
    total = max(span.end for span in passes) - min(span.start for span in passes)
    busy = [0.0] * (max(span.stage for span in passes) + 1)
    for span in passes:
        busy[span.stage] += span.end - span.start
    return [max(0.0, 1 - seconds / total) if total else 0.0 for seconds in busy]


def build_timeline_panels(record: Record) -> list[Panel]:
    """Build the panel of a pipeline's step; none of a run without one."""
    if not (spans := find_timeline(record)):
        return []
    shares = measure_idle_shares(spans)
    micros = max(span.micro for span in spans) + 1
    bubble = (len(shares) - 1) / (micros + len(shares) - 1)
    caption = (
        f"One step of {len(shares)} stages with {micros} micro-batches, by {describe_schedule(record.config)}: stages"
        f" idle for {', '.join(f'{share:.0%}' for share in shares)} of it; equal ones would for {bubble:.0%} or more."
    )
    rows = [
        [
            span.stage + 1,
            span.kind,
            span.micro + 1,
            *(NumberCell(value * MILLISECONDS, f"{value * MILLISECONDS:.3f}") for value in (span.start, span.end)),
        ]
        for span in spans
    ]
    table = Table(name="pipeline-spans", columns=["stage", "span", "micro-batch", "start, ms", "end, ms"], rows=rows)
    figure = pipeline_figure(spans)
    return [Panel(name="pipeline", figure=figure, caption=caption, reading=READING_OF_TIMELINE, data_table=table)]


def describe_schedule(config: TrainConfig) -> str:
    """Return the name of a pipeline's schedule as papers write it."""
    return {"1f1b": "1F1B", "gpipe": "GPipe"}[config.pipeline_schedule]
