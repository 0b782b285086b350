"""Sentences on a statistic of rows or texts that has moved, for readers who do not know how it is measured."""

from equipoise.drift.diagnosis.effects import Effect
from equipoise.drift.features.box_stats import BOX_UNIT, NUMBER_CAUSE, SIZE_CAUSE
from equipoise.drift.features.statistic_schema import (
    CATEGORY_CAUSE,
    COLUMN_CAUSE,
    JOINT_CAUSE,
    MISSING_CAUSE,
    SCALE_CAUSE,
    WatchedStatistic,
)
from equipoise.formatting import format_number

SHARE_UNIT = "of the "
"""first words of the units of shares, whose effects are the new share rather than a difference"""


def describe_moved_statistic(statistic: WatchedStatistic, effect: Effect, reference_mean: float) -> str:
    """Return a sentence on how far a statistic has moved, with its interval; a share with that of the reference."""
    if effect.unit.startswith(SHARE_UNIT):
        share, reference_share = map(format_small_share, (effect.value, reference_mean))
        return f"{describe_share(statistic)} {share} {effect.unit}, {reference_share} in the reference"
    times = f"{format_number(effect.value)} times"
    interval = f"({format_number(effect.low)} to {format_number(effect.high)})"
    if statistic.cause.startswith(f"{SCALE_CAUSE} "):
        return f"column {statistic.group} is spread {times} as widely as in the reference {interval}"
    if statistic.cause == SIZE_CAUSE:
        return f"the {statistic.name} of the boxes is {times} that of the reference {interval}"
    if effect.unit == "times":
        return f"the texts are {times} as long as in the reference {interval}"
    low, high = sorted((abs(effect.low), abs(effect.high)))
    difference = f"{format_number(abs(effect.value))} {effect.unit}".removesuffix(" of correlation")
    direction = "lower" if effect.value < 0 else "higher"
    return (
        f"{describe_mean(statistic)} {difference} {direction} than in the reference "
        f"({format_number(low)} to {format_number(high)})"
    )


def describe_share(statistic: WatchedStatistic) -> str:
    """Return what is true of a share of the examples, up to the number."""
    if statistic.cause.startswith(f"{MISSING_CAUSE} "):
        return f"column {statistic.group} has no value in"
    if statistic.name == f"other {statistic.group}":
        return f"column {statistic.group} has a rare or new value in"
    if statistic.cause.startswith(f"{CATEGORY_CAUSE} "):
        return f"{statistic.name} holds in"
    return "characters new to the model occur in" if statistic.is_binary else f"{statistic.name} make up"


def describe_mean(statistic: WatchedStatistic) -> str:
    """Return what has become higher or lower, up to the number."""
    if statistic.cause == JOINT_CAUSE:
        return f"the correlation of {statistic.name} is"
    if statistic.cause.startswith(f"{COLUMN_CAUSE} "):
        return f"column {statistic.group} lies"
    if statistic.unit == BOX_UNIT:
        return f"the number of {statistic.name} is"
    return f"the {statistic.name} {'is' if statistic.cause == NUMBER_CAUSE else 'are'}"


def format_small_share(share: float) -> str:
    """Format a share as a percentage with two digits that count, so that a small one is not 0 %."""
    return f"{format_number(float(f'{100 * share:.2g}'))}%"
