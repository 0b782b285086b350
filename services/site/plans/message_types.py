"""Messages of the API about plans."""

import msgspec

from equipoise.planning.document import PlanEntry, PredictedSetting


class LimitRangeReply(msgspec.Struct, frozen=True, kw_only=True):
    """Range in which a limit changes the plan."""

    low: float
    high: float
    measured: float | None
    """value that was measured; None for a limit"""


class LimitedPlanReply(msgspec.Struct, frozen=True, kw_only=True):
    """Plan of a sweep within limits."""

    name: str
    """folder of the sweep below the results"""
    plan: PlanEntry | None
    """recommended setting; null if none is within the limits"""
    runner_up: PlanEntry | None
    front: list[PredictedSetting]
    """settings that no other beats in both time and cost, the fastest first"""
    warnings: list[str]
    is_stored_plan: bool
    """whether plan.json recommends the same setting"""
    nodes: list[int]
    """numbers of nodes that can be planned with"""
    deadline_seconds: LimitRangeReply | None
    bits_per_second: LimitRangeReply | None
    delay_seconds: LimitRangeReply | None
