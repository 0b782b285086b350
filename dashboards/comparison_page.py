"""Page of one worker beside several that share its batch: which is faster, why, and from which batch on."""

from dashboards.page import Page, Section
from dashboards.panels.profiling.device_curves import build_device_panels, comparison_table
from dashboards.theme import format_seconds, format_significant
from equipoise.formatting import capitalize_first, format_bytes, format_number, format_share, pluralize
from equipoise.planning.device_comparison.comparison_report import BatchTimings, CrossingBatch, DeviceComparison

PREDICTION_SOURCE = "steps without an exchange and the exchange by itself"
MIN_TOLD_SLOWDOWN = 1.1  # of computing beside other workers, below which it is not worth a sentence


def build_comparison_page(comparison: DeviceComparison) -> Page:
    """Build the page of a comparison."""
    several = pluralize(comparison.workers, "worker")
    reasons = (describe_work(comparison), describe_slowdown(comparison))
    return Page(
        title=f"1 worker or {several}: {comparison.config.name}",
        lead=capitalize_first(describe_crossing(comparison)) + ".",
        sections=[
            Section(
                title="From which batch on it pays",
                paragraphs=[capitalize_first(text) + "." for text in (describe_epoch(comparison), *reasons) if text],
                parts=build_device_panels(comparison),
            )
        ],
    )


def describe_comparison(comparison: DeviceComparison) -> list[str]:
    """Return a comparison as lines of terminal text."""
    table = comparison_table(comparison)
    lines = ["  ".join(f"{column:>{width_of(column)}}" for column in table.columns)]
    for row in table.rows:
        cells = (getattr(cell, "text", cell) for cell in row)
        lines.append(
            "  ".join(f"{cell!s:>{width_of(column)}}" for cell, column in zip(cells, table.columns, strict=True))
        )
    texts = (describe_epoch, describe_crossing, describe_work, describe_slowdown)
    return [*lines, *(text for describe in texts if (text := describe(comparison)))]


def width_of(column: str) -> int:
    """Return the width of a column of terminal text."""
    return max(9, len(column))


def name_change(comparison: DeviceComparison, is_faster: bool) -> str:
    """Return in words what further workers make of the time of a run."""
    change = f"{comparison.config.name} {'faster' if is_faster else 'slower'}"
    return (
        f"the second worker makes {change}"
        if comparison.workers == 2
        else f"{comparison.workers} workers make {change}"
    )


def find_row(comparison: DeviceComparison) -> BatchTimings:
    """Return the row of the run's own batch, or that next to it where it was left out."""
    return min(comparison.rows, key=lambda row: abs(row.batch - comparison.config.batch_size))


def describe_epoch(comparison: DeviceComparison) -> str:
    """Return in words how long an epoch takes on one worker and on several, and what the exchange takes of it."""
    row = find_row(comparison)
    steps = row.shared_steps
    one, several = (comparison.epoch_seconds(row, seconds) for seconds in (row.one_seconds, steps.seconds))
    how = "take" if row.measured else "are predicted to take"
    return (
        f"an epoch of {comparison.config.name} at a batch of {row.batch:,} takes {format_seconds(one)} on one worker,"
        f" and {pluralize(comparison.workers, 'worker')} {how} {format_seconds(several)}: the exchange takes"
        f" {format_share(steps.exchange_share)} of their step"
        f" ({format_seconds(steps.exchange_seconds)} of {format_seconds(steps.seconds)})"
    )


def describe_crossing(comparison: DeviceComparison) -> str:
    """Return in words from which batch on several workers pay, predicted and measured."""
    text = describe_outcome(comparison, comparison.crossing)
    if comparison.measured_crossing is None:
        return f"{text}, as predicted from {PREDICTION_SOURCE}"
    predicted = comparison.predicted_crossing
    other = format_crossing(predicted) if predicted.batch else describe_outcome(comparison, predicted)
    return f"{text}, as measured; predicted from {PREDICTION_SOURCE}: {other}"


def describe_outcome(comparison: DeviceComparison, crossing: CrossingBatch) -> str:
    """Return in words from which batch on several workers pay."""
    smallest, largest = comparison.rows[0].batch, comparison.rows[-1].batch
    if crossing.outcome == "always":
        return f"{name_change(comparison, is_faster=True)} at every batch compared, from {smallest:,} on"
    slower = name_change(comparison, is_faster=False)
    if crossing.outcome == "never":
        beyond = f", and would pay from about {format_number(crossing.beyond)} on" if crossing.beyond else ""
        return f"{slower} up to a batch of {largest:,}, the largest compared{beyond}"
    return f"{slower} below a batch of {format_crossing(crossing)}, and faster above"


def summarize_comparison(comparison: DeviceComparison) -> str:
    """Return from which batch on several workers pay, for one cell of a table."""
    several, crossing = pluralize(comparison.workers, "worker"), comparison.crossing
    if crossing.outcome == "always":
        return f"{several} pay at every batch"
    if crossing.outcome == "never":
        return f"{several} pay at no batch"
    return f"{several} pay from a batch of {format_crossing(crossing)}"


def format_crossing(crossing: CrossingBatch) -> str:
    """Format the batch of a crossing with its interval of 80 %."""
    if crossing.batch is None:
        return "-"
    value, low, high = (f"{bound:,.0f}" for bound in (crossing.batch.value, crossing.batch.low, crossing.batch.high))
    return f"{value} ({low} to {high})"


def describe_work(comparison: DeviceComparison) -> str:
    """Return in words what a step exchanges, and what it computes for that."""
    return (
        f"a step exchanges {format_bytes(comparison.gradient_bytes)} of gradients, which takes"
        f" {format_seconds(comparison.exchange_seconds)} by itself, and an example takes"
        f" {format_significant(comparison.flop_per_example / 1e6)} million operations:"
        f" {format_significant(comparison.flop_per_byte)} for each byte"
    )


def describe_slowdown(comparison: DeviceComparison) -> str:
    """Return in words how much longer workers compute beside each other than alone; empty where it is little."""
    row = find_row(comparison)
    if row.slowdown < MIN_TOLD_SLOWDOWN:
        return ""
    return (
        f"besides, a worker computes {row.slowdown:.2f} times as long while the others do, without any exchange: they"
        " share memory or processors"
    )
