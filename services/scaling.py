"""How many replicas there should be: as many as keep each of them busy for most of the time, and no more.

Ray counts what passes its own proxies and handles, and sees no request here. Replicas tell how much of the time they
compute; a number of open requests would say how many clients there are rather than how much work.
"""

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray.serve.config import AutoscalingContext

TARGET_BUSY_FRACTION = 0.7  # of the time: beyond it requests wait for each other
BUSY_METRIC_NAME = "busy"  # what replicas call it


def policy(context: "AutoscalingContext") -> tuple[int, dict[str, Any]]:
    """Ray's question, and our answer; its own delays and bounds are applied to that."""
    busy = (context.aggregated_metrics or {}).get(BUSY_METRIC_NAME, {})
    return required_replicas([*busy.values()], context.target_num_replicas), {}


def required_replicas(busy_fractions: list[float], current: int) -> int:
    """How many it takes, of what each computed lately as a share of the time; as many as now if nobody said."""
    return max(1, math.ceil(sum(busy_fractions) / TARGET_BUSY_FRACTION - 1e-9)) if busy_fractions else current
