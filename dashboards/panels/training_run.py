"""Panels of one training run: loss and metric, throughput, time of a step, and gradient noise scale.

What a run has not measured, as one of a program that reports its metric alone, is left out.
"""

from collections.abc import Sequence
from dataclasses import fields
from statistics import fmean

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboards.page import ImageGallery, NumberCell, Panel, Section, SectionPart, Table
from dashboards.theme import (
    AMBER,
    BLUE,
    NEUTRAL_COLOR,
    PURPLE,
    STEP_PART_COLORS,
    apply_theme,
    format_interval,
    format_seconds,
    format_significant,
    round_significant,
    set_log_axis,
    share_x_axis,
)
from equipoise.config import TrainConfig
from equipoise.formatting import format_bytes, format_joules, format_number, format_units, pluralize
from equipoise.planning.interval import IntervalEstimate
from equipoise.proportions import wilson_interval
from equipoise.runs.misclassified import MisclassifiedImage
from equipoise.runs.noise_scale import explain_missing_noise_scale
from equipoise.runs.record import Lap, Record, mean_noise_scale
from equipoise.runs.target import Target

STEP_PART_NAMES = {"compute": "computing", "exchange": "exchanging gradients", "data": "loading data"}
READING_OF_LAPS = (
    "All rows share the examples seen below; each point is a lap, some steps that are timed together. The axis of"
    " the metric is on the right; a dotted line is its target. Bars are the time of a step of the slowest worker (of"
    " asynchronous ones in the mean): computing, what the gradient exchange adds to it, and waiting for data;"
    " evaluations are not in them. The noise scale is the number of examples beyond which a larger batch teaches little"
    " more per example; it is a mean over up to 20 laps, and missing where the noise of the measurement hides it."
)
LAPS_PER_NOISE_POINT = 20  # laps that a point of the noise scale averages over: single draws say little
STEP_PARTS = ("compute", "exchange", "data")
METRIC_AXIS_MARGIN = 0.05  # of the span of the values, above and below them


def laps_table(record: Record) -> pd.DataFrame:
    """Return the laps as a table, with the noise scale averaged over up to `LAPS_PER_NOISE_POINT` laps."""
    table = pd.DataFrame([vars(lap) for lap in record.laps], columns=[field.name for field in fields(Lap)])
    measured = ["loss", "metric", *(f"{part}_seconds" for part in STEP_PARTS)]
    table[measured] = table[measured].astype(float)  # a column of nothing but None would be no numbers
    terms = pd.DataFrame(
        [(*lap.noise_terms(), lap.draws) if lap.noise_terms() else (0.0, 0.0, 0) for lap in record.laps],  # type: ignore[misc]
        columns=["signal", "variance", "draws"],
    )
    sums = terms[["signal", "variance"]].mul(terms.draws, axis=0).rolling(LAPS_PER_NOISE_POINT, min_periods=1).sum()
    table["noise"] = (sums.variance / sums.signal).where((sums.signal > 0) & (sums.variance > 0))
    return table


def laps_figure(table: pd.DataFrame, target: Target) -> go.Figure:
    """Draw the table of `laps_table` as four rows over the examples seen."""
    rows = make_subplots(rows=4, shared_xaxes=True, vertical_spacing=0.05, specs=[[{"secondary_y": True}], *[[{}]] * 3])
    evaluated, with_loss = table.dropna(subset="metric"), table.dropna(subset="loss")
    if len(with_loss):
        add_line(rows, 1, with_loss.seen, with_loss.loss, "loss, training", NEUTRAL_COLOR)
    add_line(rows, 1, evaluated.seen, evaluated.metric, f"{target.metric_name}, validation", BLUE, secondary_y=True)
    if target.value is not None:
        rows.add_hline(target.value, line_dash="dot", line_color=BLUE, row=1, col=1, secondary_y=True)
    add_line(rows, 2, table.seen, table.examples / table.seconds, "examples/s", PURPLE)
    for part, color in STEP_PART_COLORS.items():
        milliseconds = table[f"{part}_seconds"] / table.steps * 1000
        if not milliseconds.any():  # a single worker has no exchange, and a program may report no parts
            continue
        hover = "%{y:,.3~r} ms"
        marker = {"color": color, "line_width": 0}  # a border would be a stripe between narrow bars
        rows.add_bar(x=table.seen, y=milliseconds, name=part, marker=marker, hovertemplate=hover, row=3, col=1)
    add_line(rows, 4, table.seen, table.noise, "noise scale", AMBER)
    rows.update_yaxes(title_text="loss", visible=len(with_loss) > 0, row=1, col=1, secondary_y=False)
    metric_range = find_metric_range(evaluated.metric.tolist(), target)
    rows.update_yaxes(title_text=target.metric_name, showgrid=False, range=metric_range, row=1, col=1, secondary_y=True)
    rows.update_yaxes(title_text="examples/s", rangemode="tozero", row=2, col=1)
    rows.update_yaxes(title_text="ms per step", row=3, col=1)
    set_log_axis(rows, "y", table.noise.dropna(), "noise scale, examples", row=4, col=1)
    rows.update_xaxes(title_text="examples seen", row=4, col=1)
    share_x_axis(rows, 4)
    return apply_theme(rows, 860).update_layout(barmode="stack", bargap=0, legend={"y": 1.02, "traceorder": "normal"})


def find_metric_range(metrics: Sequence[float], target: Target) -> list[float]:
    """Return the range of the axis of a metric: 0 to 1 for a share to be raised, else where values and target lie."""
    values = [*metrics, *([] if target.value is None else [target.value])]
    if not values or (not target.lower_is_better and min(values) >= 0 and max(values) <= 1):
        return [0, 1.02]  # a metric of 1 is seen
    low, high = min(values), max(values)
    margin = METRIC_AXIS_MARGIN * ((high - low) or abs(high) or 1.0)
    return [low - margin, high + margin]


def add_line(
    figure: go.Figure,
    row: int,
    x: "pd.Series[float]",
    y: "pd.Series[float]",
    name: str,
    color: str,
    **axis_options: bool,
) -> None:
    """Add a line to one row of the panels; those that are alone in their row need no entry in the legend."""
    mode = "lines" if len(x) > 2 else "lines+markers"
    options = {"name": name, "mode": mode, "line_color": color, "hovertemplate": "%{y:,.4~r}", "showlegend": row == 1}
    figure.add_scatter(x=x, y=y, row=row, col=1, **options, **axis_options)


def describe_result(record: Record) -> str:
    """Return in one sentence whether a run reached its target, when, and what slowed it down most."""
    laps, target = record.laps, record.goal.describe()
    metrics = [lap.metric for lap in laps if lap.metric is not None]
    best = f"the best {record.metric_name} was {record.goal.best(metrics):.3g}" if metrics else "it was not evaluated"
    if record.examples_to_target and laps:
        seconds = record.seconds * record.examples_to_target / laps[-1].seen
        examples = format_significant(record.examples_to_target)
        result = f"Reached the target of {target} after {examples} examples, in {format_seconds(seconds)} of training"
    elif laps and record.target is None:
        ended = "Trained its" if record.status == "max_examples" else f"Ended ({record.outcome}) after"
        seconds_text = format_seconds(record.seconds)
        result = f"{ended} {laps[-1].seen:,} examples in {seconds_text}, without a target: {best}"
    elif metrics:
        result = f"Did not reach the target of {target}: {best}"
    else:
        result = f"Ended before its first evaluation ({record.outcome})"
    parts = {name: sum(getattr(lap, f"{name}_seconds") or 0.0 for lap in laps) for name in STEP_PARTS}
    if total := sum(parts.values()):
        shares = ", ".join(f"{STEP_PART_NAMES[name]} {part / total:.0%}" for name, part in parts.items() if part)
        result += f"; the time of a step: {shares}"
    return f"{result}."


def run_facts(record: Record) -> dict[str, str]:
    """Return the settings and results of a run in words."""
    config = record.config
    return {
        "command" if config.command else "workload": config.command or config.name,
        "status": record.outcome,
        "workers x batch": f"{config.workers} x {config.batch_size}"
        + (f" x {config.grad_accumulation}" * (config.grad_accumulation > 1)),
        "learning rate": format_number(config.lr),
        **list_exchange_facts(config, record.laps),
        **list_memory_facts(record),
        **list_energy_facts(record),
        "examples to the target": format_significant(record.examples_to_target),
        "training time": format_seconds(record.seconds or None),
        "throughput": f"{format_significant(record.examples_per_second)} examples/s" if record.laps else "-",
        f"test {record.metric_name}": format_test_metric(record),
        "noise scale": describe_noise_scale(record),
    }


def list_exchange_facts(config: TrainConfig, laps: Sequence[Lap]) -> dict[str, str]:
    """Return when workers exchange what they learned, where they do not sum gradients in every step."""
    if config.sync_method.kind == "step":
        return {}
    servers = f", {pluralize(config.servers, 'server')}" if config.servers else ", a server on each worker"
    exchange = {"exchange": config.sync + servers * config.sync_method.has_store}
    stale = [(lap.mean_staleness, lap.max_staleness or 0) for lap in laps if lap.mean_staleness is not None]
    if not stale:
        return exchange
    mean, largest = fmean(mean for mean, _ in stale), max(largest for _, largest in stale)
    return exchange | {"staleness": f"{format_significant(mean)} updates on average, {largest} at most"}


def list_memory_facts(record: Record) -> dict[str, str]:
    """Return what workers hold of the model, where it is not all of it, and the memory that was measured."""
    facts = {} if record.config.sharding == "none" else {"sharding": record.config.sharding}
    if record.config.recompute:
        facts["recomputed"] = "activations of blocks"
    if record.peak_bytes is not None:
        facts["peak memory of a worker"] = format_bytes(record.peak_bytes)
    return facts


def list_energy_facts(record: Record) -> dict[str, str]:
    """Return the energy of a run, where it is known or assumed."""
    if record.joules is None:
        return {}
    watts = record.config.watts
    return {"energy": format_joules(record.joules) + ("" if watts is None else f", assuming {watts:,.4g} W a worker")}


def describe_noise_scale(record: Record) -> str:
    """Describe the noise scale of a run in examples, and in the unit of its workload."""
    noise = mean_noise_scale(record.laps)
    if noise is None:
        return f"not measurable: {explain_missing_noise_scale(record.config, sum(lap.draws for lap in record.laps))}"
    units = format_units(round_significant(noise, 2), record.unit, record.units_per_example)
    return f"about {format_significant(noise, 2)} examples{units}"


def format_test_metric(record: Record) -> str:
    """Format the metric on the test split; where it is an accuracy, with the 95 % interval of its count."""
    if record.test is None or not record.test_classes:
        return format_number(record.test)
    low, high = wilson_interval(record.test, sum(count.images for count in record.test_classes))
    return format_interval(IntervalEstimate(value=record.test, low=low, high=high))


def format_accuracy(share: float, images: int) -> str:
    """Format an accuracy with its 95 % interval as percentages."""
    low, high = wilson_interval(share, images)
    return f"{share:.0%} ({low:.0%} to {high:.0%})"


def build_run_panels(record: Record) -> list[Panel]:
    """Build the panel of a run's laps."""
    table = laps_table(record)
    caption = (
        f"Loss and {record.metric_name}, throughput, time of a step by part, and gradient noise scale during training."
    )
    columns = ["seen", "loss", "metric", "examples", "seconds", "compute_seconds", "exchange_seconds", "data_seconds"]
    rows = [[None if pd.isna(value) else value for value in row] for row in table[columns].itertuples(index=False)]
    names = [record.metric_name if name == "metric" else name.replace("_", " ") for name in columns]
    data_table = Table(name="laps", columns=names, rows=rows)
    figure = laps_figure(table, record.goal)
    return [Panel(name="laps-panel", figure=figure, caption=caption, reading=READING_OF_LAPS, data_table=data_table)]


def build_class_sections(record: Record, misclassified: Sequence[MisclassifiedImage]) -> list[Section]:
    """Build the section of the accuracy by class and of wrongly classified test images; none if not measured."""
    if not record.test_classes:
        return []
    counts = sorted(record.test_classes, key=lambda count: count.accuracy)
    rows = [
        (
            count.name,
            count.images,
            count.correct,
            NumberCell(count.accuracy, format_accuracy(count.accuracy, count.images)),
        )
        for count in counts
    ]
    columns = ["class", "test images", "correct", "accuracy"]
    parts: list[SectionPart] = [Table(name="classes", columns=columns, rows=rows)]
    if misclassified:
        captioned = [(image.png, f"{image.label}, taken for {image.predicted}") for image in misclassified]
        wrong = sum(count.images - count.correct for count in counts)
        caption = f"Wrongly classified: the first {len(misclassified)} of {wrong:,} test images, each with its class."
        parts.append(ImageGallery(name="misclassified", captioned_pngs=captioned, caption=caption))
    paragraph = (
        "Test images that the final model classifies correctly, the class with the lowest accuracy first; in brackets"
        " are 95 % intervals."
    )
    return [Section(title="Classes", paragraphs=[paragraph], parts=parts)]
