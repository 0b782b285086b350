"""What a plan says of each kind of worker: the fit of its step times, and how its best setting compares."""

from dataclasses import dataclass

from equipoise.number_bounds import FiniteNumber, NonNegativeNumber, PositiveNumber
from equipoise.planning.interval import IntervalEstimate


@dataclass(frozen=True, kw_only=True)
class DeviceFit:
    """Fit of the step times of one device, and the best setting on it."""

    device: str | None
    """name of the device; None for rows without one"""
    identifiable: bool
    """true if the fit predicts all of its settings, and larger clusters than those measured"""
    missing: tuple[str, ...] = ()
    """measurements that further predictions need"""
    parameters: dict[str, FiniteNumber]
    """fitted parameters of the step-time model, by name"""
    error: NonNegativeNumber
    """mean relative error of the fit"""
    exchange: str = ""
    """way of exchange of the rows that were fitted"""
    bits_per_second: PositiveNumber | None = None
    """rate of the slowest link of these rows; None where the table has none"""
    price: PositiveNumber | None = None
    """dollars that a worker costs for an hour; None where it was not given"""
    seconds: IntervalEstimate | None = None
    """seconds to the target with the best setting on this device; None where there is none"""
    worker_seconds: PositiveNumber | None = None
    """cost of this setting: seconds times workers"""
    dollars: PositiveNumber | None = None
    """cost of this setting in dollars; None without a price"""
    verdict: str = ""
    """how this device compares with that of the plan, in one clause; empty for the device of the plan"""
