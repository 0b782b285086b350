"""Settings of a plan that fit in the memory of a worker, as far as the rows of system.csv tell."""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from equipoise.formatting import pluralize
from equipoise.planning.memory.measured_peaks import find_peak
from equipoise.planning.memory.memory_limit import explain_excess, format_memory
from equipoise.planning.plan import PlanOption

NO_FIT = "no setting fits in memory"


class MemoryNeed(NamedTuple):
    """Setting with the peak bytes of a worker."""

    option: PlanOption
    peak_bytes: float


class FittingOptions(NamedTuple):
    """Settings to plan with, and sentences on those that were left out."""

    kept: list[PlanOption]
    warnings: list[str]


def keep_fitting_options(
    options: Sequence[PlanOption], rows: pd.DataFrame | None, limit_bytes: float | None
) -> FittingOptions:
    """Return the settings whose peak is within a limit or not known, and what is left out or not known."""
    if limit_bytes is None or rows is None:
        return FittingOptions([*options], [])
    needs = list_needs(options, rows)
    excess = [need for need in needs if need.peak_bytes > limit_bytes]
    unknown = len(options) - len(needs)
    too_large = {id(need.option) for need in excess}
    kept = [option for option in options if id(option) not in too_large]
    gap = (
        f"whether {pluralize(unknown, 'setting')} of {len(options):,} fit in {format_memory(limit_bytes)} a worker is"
        " not known: that takes peak_bytes in the rows of two batches with as many workers"
    )
    return FittingOptions(
        kept, [*describe_excess(excess, limit_bytes, has_others=bool(kept)), *([gap] if unknown else [])]
    )


def list_needs(options: Sequence[PlanOption], rows: pd.DataFrame) -> list[MemoryNeed]:
    """Return the settings whose peak is known."""
    peaks = ((option, find_peak(rows, option.workers, option.batch)) for option in options)
    return [MemoryNeed(option, peak) for option, peak in peaks if peak is not None]


def describe_excess(excess: Sequence[MemoryNeed], limit_bytes: float, *, has_others: bool) -> list[str]:
    """Return a sentence on the settings that do not fit, with the one that needs least; none where all fit."""
    if not excess:
        return []
    least = min(excess, key=lambda need: need.peak_bytes)
    example = f"{least.option.workers} x {least.option.batch} {explain_excess(least.peak_bytes, limit_bytes)}"
    if not has_others:
        return [f"{NO_FIT}: {example}; give more --memory, or time steps with --exchanges full"]
    return [f"left out: {pluralize(len(excess), 'setting')} that do not fit in memory, the smallest {example}"]
