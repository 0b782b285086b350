"""Verdict of a check as terminal text."""

from equipoise.drift.diagnosis.accuracy_estimate import AccuracyEstimate
from equipoise.drift.diagnosis.verdict import ChartEffect, DatasetVerdict
from equipoise.formatting import format_number, format_share, make_printable

MAX_LISTED_CHARTS = 6  # charts
MIN_NAME_WIDTH = 18  # characters of the column of chart names


def format_verdict_table(verdict: DatasetVerdict) -> str:
    """Format the verdict as terminal text, with a table of its highest charts."""
    lines = [f"{verdict.state}: {verdict.why}"]
    if condition := verdict.describe_condition():
        lines.append(f"condition: {condition}")
    if isinstance(accuracy := verdict.accuracy, AccuracyEstimate):
        lines.append(f"accuracy about {accuracy.value:.0%} ({accuracy.low:.0%} to {accuracy.high:.0%})")
    elif verdict.state == "drift" and verdict.has_accuracy and not verdict.measured:
        lines.append(f"accuracy unknown: label 30 to 100 of these {verdict.example_name} to measure it")
    if verdict.measured:
        lines.append(f"{verdict.measured.metric} {verdict.measured.describe_values(verdict.example_name)}")
    if runner_up := verdict.runner_up:
        share = format_share(runner_up.explained)
        lines.append(f"runner-up: {runner_up.cause} in place of the last cause would explain {share}")
    if verdict.proof:
        lines.append(f"after undoing the causes on these images, {verdict.proof.left:.0%} of the drift is left")
    if verdict.support and verdict.support.moved:
        share = f"{verdict.support.share:.0%}"
        remedy = "collect more like them and label them" if verdict.kind != "text" else "train on more like them"
        lines.append(f"only {share} of the reference is like these {verdict.example_name}: {remedy}")
    if verdict.piece_characters:
        lines.append(f"each text is a piece of {verdict.piece_characters} characters, which the model reads at once")
    if verdict.uncompared:
        total = verdict.images + verdict.uncompared
        lines.append(f"compared {verdict.images:,} of {total:,} {verdict.example_name}, evenly spaced")
    return "\n".join(map(make_printable, [*lines, *list_chart_lines(verdict)]))


def list_chart_lines(verdict: DatasetVerdict) -> list[str]:
    """Return the lines of the table of the highest charts."""
    charts = verdict.charts[:MAX_LISTED_CHARTS]
    width = max(MIN_NAME_WIDTH, *(len(chart.name) + 2 for chart in charts), 0)
    lines = [f"{'chart':{width}}{'value':>8}{'alarm threshold':>17}   effect"]
    for chart in charts:
        effect = format_effect(chart.effect) if chart.effect else ""
        lines.append(f"{chart.name:{width}}{chart.value:z8.1f}{chart.threshold:17.1f}   {effect}")
    return lines


def format_effect(effect: ChartEffect) -> str:
    """Format an effect's size with its interval and unit."""
    interval = "" if effect.low is None else f" ({format_number(effect.low)} to {format_number(effect.high)})"
    return f"{format_number(effect.value)}{interval} {effect.unit}"
