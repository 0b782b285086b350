"""Names of the charts of a profile: of each charted statistic, of the predicted classes and of the model's features."""

from dataclasses import dataclass

import numpy as np

from equipoise.drift.charts.cusum import FEATURE_MEMORY_IMAGES, SHIFT_SIZES
from equipoise.type_aliases import FloatArray

CLASS_AND_FEATURE_CHARTS = ("class gone", "class more often", *("features",) * len(FEATURE_MEMORY_IMAGES))


@dataclass(frozen=True)
class ChartNames:
    """Names of the charts, in the order of their values; several charts may share one."""

    statistics: tuple[str, ...]
    """names of the charted statistics"""

    @property
    def score_chart_count(self) -> int:
        """Number of charts of statistics: for each direction and size of a shift."""
        return 2 * len(SHIFT_SIZES) * len(self.statistics)

    @property
    def unique(self) -> tuple[str, ...]:
        """Names of all charts, each once."""
        return tuple(dict.fromkeys((*self.statistics, *CLASS_AND_FEATURE_CHARTS)))

    def name_of(self, chart_index: int) -> str:
        """Return the name of a chart, given its index among the values."""
        if chart_index < self.score_chart_count:
            return self.statistics[chart_index % len(self.statistics)]
        return CLASS_AND_FEATURE_CHARTS[chart_index - self.score_chart_count]

    def highest_by_statistic(self, values: FloatArray) -> FloatArray:
        """Return the highest value among the charts of each statistic, (statistics,)."""
        return np.asarray(values[: self.score_chart_count].reshape(-1, len(self.statistics)).max(0))

    def highest_by_name(self, values: FloatArray) -> FloatArray:
        """Return the highest value among the charts of each name, in the order of `unique`."""
        names = self.unique
        others = np.full(len(names) - len(self.statistics), -np.inf)
        highest = np.concatenate([self.highest_by_statistic(values), others])
        indices = [names.index(name) for name in CLASS_AND_FEATURE_CHARTS]
        np.maximum.at(highest, indices, values[self.score_chart_count :])
        return highest
