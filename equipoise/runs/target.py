"""The target of a run: the value of its metric at which training stops, and which direction is better."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from equipoise.config import TrainConfig

UNNAMED_METRIC = "metric"  # of workloads that give theirs no name


@dataclass(frozen=True, kw_only=True)
class Target:
    """Value of a metric that a run aims for; None if it ends at its number of examples whatever the metric."""

    value: float | None
    lower_is_better: bool = False
    metric_name: str = UNNAMED_METRIC

    def is_reached(self, metric: float) -> bool:
        """Return whether a metric is as good as the target or better."""
        if self.value is None:
            return False
        return metric <= self.value if self.lower_is_better else metric >= self.value

    def is_better(self, metric: float, other: float) -> bool:
        """Return whether a metric is better than another one."""
        return metric < other if self.lower_is_better else metric > other

    def best(self, metrics: Sequence[float]) -> float:
        """Return the best of some metrics."""
        return min(metrics) if self.lower_is_better else max(metrics)

    def describe(self) -> str:
        """Describe the target as it stands after the word, such as 'at least 0.5 mAP'; 'none' without one."""
        if self.value is None:
            return "none"
        name = "" if self.metric_name == UNNAMED_METRIC else f" {self.metric_name}"
        return f"{'at most' if self.lower_is_better else 'at least'} {self.value:g}{name}"

    def list_targets(self, values: Sequence[float]) -> "tuple[Target, ...]":
        """Return targets with these values in the direction of this one, each once and the easiest first.

        Without values it is this target alone.
        """
        if not values:
            return (self,)
        ordered = sorted({float(value) for value in values}, reverse=self.lower_is_better)
        return tuple(replace(self, value=value) for value in ordered)


def command_target(config: TrainConfig) -> Target:
    """Return the target of a run of a user's command: --target, which may be missing outside of a sweep."""
    return Target(value=config.target, lower_is_better=config.lower_is_better)
