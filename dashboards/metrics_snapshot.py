"""Snapshot of a service's metrics, from which its page is drawn."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

MetricName = Literal["requests", "refused", "seconds", "pictures", "batches"]


@dataclass(frozen=True, kw_only=True)
class MetricsSnapshot:
    """Sums of a service's counters at one time, each by label."""

    time: float
    """Unix time in seconds"""
    requests: Mapping[str, float] = field(default_factory=dict)
    """requests for predictions by HTTP status"""
    refused: Mapping[str, float] = field(default_factory=dict)
    """refused requests by reason"""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """requests for predictions by upper bound of their seconds, cumulative"""
    pictures: Mapping[str, float] = field(default_factory=dict)
    """answered images by model and version"""
    batches: Mapping[str, float] = field(default_factory=dict)
    """computed batches by upper bound of their images, cumulative"""

    def counts(self, metric: MetricName) -> Mapping[str, float]:
        """Return the counts of one metric by label."""
        counts: Mapping[str, float] = getattr(self, metric)
        return counts
