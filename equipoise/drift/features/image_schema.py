"""Schema of the statistics of an image: of its light, focus and framing, and of the confidence of the model."""

import numpy as np

from equipoise.drift.features.image_stats import COLOR_STATISTICS, STATISTIC_NAMES
from equipoise.drift.features.statistic_schema import StatisticSchema, WatchedStatistic, build_schema

CELL_CONDITION_WEIGHT = 0.25
"""the luminances of the cells of an image are many and move together: of toy images in two lights, 2.3 % and 0.9 % are
assigned to the wrong light with equal weights, 0.6 % and 0.2 % with this one"""
CELL_CAUSE_WEIGHT = 0.5  # of a cell's score, for the same reason
GRAIN_CAUSE_WEIGHT = 0.4  # of roughness: whether grain grows with the light differs by camera
POSITION_STATISTICS = ("height", "side")


def describe_image_statistic(name: str) -> WatchedStatistic:
    """Describe a statistic of an image, given its name."""
    unit, factor = "times", 1.0
    if name in COLOR_STATISTICS or name.startswith("cell"):
        unit, factor = "stops", float(1 / np.log(2))
    elif name in POSITION_STATISTICS:
        unit = "of half the image"
    weight = CELL_CAUSE_WEIGHT if name.startswith("cell") else GRAIN_CAUSE_WEIGHT if name == "roughness" else 1.0
    return WatchedStatistic(
        name=name,
        unit=unit,
        unit_factor=factor,
        condition_weight=CELL_CONDITION_WEIGHT if name.startswith("cell") else 1.0,
        cause_weight=weight,
        onset_weight=weight,
    )


def build_confidence_statistics() -> tuple[WatchedStatistic, ...]:
    """Describe the statistics of a classifier's confidence, which follow from the input and are no cause."""
    return (
        WatchedStatistic(name="log odds", source="output", unit="nats", cause_weight=0.0),
        WatchedStatistic(name="energy", source="output", unit="nats", cause_weight=0.0, onset_weight=0.0),
    )


IMAGE_SCHEMA: StatisticSchema = build_schema(
    "image", [describe_image_statistic(name) for name in STATISTIC_NAMES], build_confidence_statistics()
)
