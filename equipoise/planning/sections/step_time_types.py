"""Types of the part of plan.json on step times: the fit, its links, and its predictions."""

from dataclasses import asdict, dataclass
from typing import Literal

from equipoise.number_bounds import Count, FiniteNumber, NonNegativeNumber, PositiveNumber
from equipoise.planning.devices.device_fit import DeviceFit
from equipoise.planning.exchanges.fastest_exchange import FastestExchange
from equipoise.planning.interval import IntervalEstimate
from equipoise.type_aliases import JsonObject


@dataclass(frozen=True, kw_only=True)
class StepTimePrediction:
    """Predicted seconds of a step at one setting; None where measurements are missing for it."""

    nodes: Count
    """number of nodes"""
    workers: Count
    """workers on all nodes"""
    batch: Count
    """examples per worker and step"""
    seconds: NonNegativeNumber | None
    """predicted seconds of a step"""
    low: NonNegativeNumber | None
    """lower end of the 80 % interval"""
    high: NonNegativeNumber | None
    """upper end of the 80 % interval"""
    measured: bool
    """true if this setting was timed"""
    exchange: str = ""
    """way of exchange; empty for exact sums of the gradient in every step"""
    bits_per_second: PositiveNumber | None = None
    """rate of the slowest link; None where the table has none"""
    device: str | None = None
    """kind of worker; None where the table names none"""


@dataclass(frozen=True, kw_only=True)
class NetworkLink:
    """Delay and rate of one network level, as far as the measurements identify them."""

    alpha_seconds: IntervalEstimate | None = None
    """seconds per message"""
    bytes_a_second: IntervalEstimate | None = None
    """bytes per second"""

    def to_json(self) -> JsonObject:
        """Return the link as JSON values, without the estimates that are unknown."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class StepTimeSection:
    """Fit of the step times and its predictions: at each measured setting, and at those requested."""

    identifiable: bool
    """true if the fit predicts all of them, and larger clusters than those measured"""
    missing: tuple[str, ...]
    """measurements that further predictions need"""
    parameters: dict[str, FiniteNumber]
    """fitted parameters of the step-time model, by name"""
    links: dict[str, NetworkLink]
    """links within a node (`local`) and between nodes (`between`), as far as measured"""
    form: Literal["ring", "two rings"]
    """one ring of all workers, or a ring inside each node and one between nodes"""
    error: NonNegativeNumber
    """mean relative error of the fit"""
    predictions: tuple[StepTimePrediction, ...]
    """step times at the settings measured, and at those requested"""
    exchange: str = ""
    """way of exchange of the rows that were fitted"""
    bits_per_second: PositiveNumber | None = None
    """rate of the slowest link of these rows; None where the table has none"""
    fastest_exchanges: tuple[FastestExchange, ...] = ()
    """at each rate and setting, the exchange with the shortest step, where there are several"""
    device: str | None = None
    """kind of worker that these parameters are of, which is that of the plan; None where the table names none"""
    devices: tuple[DeviceFit, ...] = ()
    """fit and best setting of each kind of worker that the table names, in its order"""

    @property
    def fit_predictions(self) -> list[StepTimePrediction]:
        """Predictions for the device, the exchange and the rate of the fit, without those for others."""
        fitted = self.device, self.exchange, self.bits_per_second
        return [row for row in self.predictions if (row.device, row.exchange, row.bits_per_second) == fitted]

    def to_json(self) -> JsonObject:
        """Return the section as JSON values."""
        return asdict(self) | {"links": {level: link.to_json() for level, link in self.links.items()}}
