"""Autoscaling policy: the fewest replicas with which each is busy for at most 70 % of the time.

Ray counts the requests that pass its own proxies and handles, and sees none here. So replicas report the fraction of
time for which they compute; a number of open requests would depend on the number of clients rather than on the work.
"""

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray.serve.config import AutoscalingContext

TARGET_BUSY_FRACTION = 0.7  # of the time; above it requests wait for each other
BUSY_METRIC_NAME = "busy"  # name of the metric that replicas report


def policy(context: "AutoscalingContext") -> tuple[int, dict[str, Any]]:
    """Return the number of replicas to Ray's autoscaler, which then applies its own delays and bounds."""
    busy = (context.aggregated_metrics or {}).get(BUSY_METRIC_NAME, {})
    return required_replicas([*busy.values()], context.target_num_replicas), {}


def required_replicas(busy_fractions: list[float], current: int) -> int:
    """Return the replicas needed for the load that each replica's busy fraction shows; `current` without reports."""
    return max(1, math.ceil(sum(busy_fractions) / TARGET_BUSY_FRACTION - 1e-9)) if busy_fractions else current
