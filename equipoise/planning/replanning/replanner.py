"""Plans within limits that somebody moves, from measurements that are fitted once."""

from dataclasses import dataclass, field, replace

from equipoise.planning.build_document import PlanRequest
from equipoise.planning.devices.device_plan import build_device_plan
from equipoise.planning.devices.device_prices import CostLimits, convert_to_dollars
from equipoise.planning.document import PlanDocument
from equipoise.planning.exchanges.exchange_plan import ExchangePlan, ExchangeRequest, mark_predicted
from equipoise.planning.plan import ClusterShape
from equipoise.planning.replanning.fit_memory import FitMemory
from equipoise.planning.replanning.link_change import LinkChange
from equipoise.planning.sections.step_time_types import NetworkLink

NODE_FACTORS = (2, 4, 8)  # times the most nodes measured: how far a plan may look
LIMIT_MARGIN = 1.25  # of a range of limits beyond the fastest and the slowest setting
LINK_SPAN = 100.0  # of a range of rates or delays to either side of the measured one


@dataclass(frozen=True, kw_only=True)
class PlanLimits:
    """Limits that a plan must keep, and the network that it is for."""

    deadline_seconds: float | None = None
    """longest time to the target; None for any"""
    cost: CostLimits = field(default_factory=CostLimits)
    """price of workers, and what a run may cost"""
    max_nodes: int | None = None
    """most nodes; None for as many as were measured"""
    links: LinkChange = LinkChange()  # noqa: RUF009 - immutable
    """slowest links; as measured unless they are replaced"""


@dataclass(frozen=True, kw_only=True)
class LimitRange:
    """Lowest and highest value of a limit between which plans differ, and the measured one, if it was measured."""

    low: float
    high: float
    measured: float | None = None


@dataclass(frozen=True, kw_only=True)
class LimitRanges:
    """Ranges of all limits; None for a limit that the measurements say nothing of."""

    deadline_seconds: LimitRange | None
    worker_seconds: LimitRange | None
    """cost, which a price turns into dollars"""
    nodes: tuple[int, ...]
    """numbers of nodes that can be planned with"""
    measured_nodes: int
    """most nodes that were measured"""
    bits_per_second: LimitRange | None
    delay_seconds: LimitRange | None
    has_devices: bool = False
    """whether workers are of several kinds, which have prices of their own"""

    def budget_dollars(self, price: float | None) -> LimitRange | None:
        """Return the range of what a run may cost at a price per worker and hour; None without a price."""
        seconds = self.worker_seconds
        if seconds is None or price is None:
            return None
        return LimitRange(low=convert_to_dollars(seconds.low, price), high=convert_to_dollars(seconds.high, price))


class Replanner:
    """Measurements of a sweep with the memory of their fits."""

    def __init__(self, request: PlanRequest) -> None:
        self.request = replace(request, memory=FitMemory())
        self._ranges: LimitRanges | None = None

    def build_plan(self, limits: PlanLimits) -> ExchangePlan:
        """Build the plan within the limits, as jobs.plan does."""
        links = None if limits.links.is_empty else limits.links
        measured_nodes = self.count_measured_nodes()
        max_nodes = limits.max_nodes or measured_nodes
        request = replace(
            self.request,
            deadline_seconds=limits.deadline_seconds,
            cluster_shapes=tuple(shape for shape in self.list_larger_shapes() if shape.nodes <= max_nodes),
            max_nodes=max_nodes if max_nodes < measured_nodes else None,
            links=links,
        )
        plan = build_device_plan(request, ExchangeRequest(), limits.cost)
        return plan._replace(document=mark_predicted(plan.document)) if links else plan

    def find_ranges(self) -> LimitRanges:
        """Return the ranges in which limits change the plan, from the settings that the measurements predict."""
        if self._ranges is None:
            self._ranges = self._compute_ranges()
        return self._ranges

    def _compute_ranges(self) -> LimitRanges:
        shapes = self.list_larger_shapes()
        document = self.build_plan(PlanLimits(max_nodes=max((shape.nodes for shape in shapes), default=None))).document
        options, link = document.options, find_slowest_link(document)
        rate, delay = (link.bytes_a_second, link.alpha_seconds) if link else (None, None)
        return LimitRanges(
            deadline_seconds=span_values([option.seconds.value for option in options]),
            worker_seconds=span_values([option.worker_seconds for option in options]),
            nodes=tuple(sorted({option.nodes for option in options})),
            measured_nodes=self.count_measured_nodes(),
            bits_per_second=None if rate is None else widen_value(8 * rate.value),
            delay_seconds=None if delay is None else widen_value(delay.value),
            has_devices=bool(document.system and len(document.system.devices) > 1),
        )

    def count_measured_nodes(self) -> int:
        """Return the most nodes on which steps were timed."""
        return 1 if self.request.system is None else int(self.request.system.nodes.max())

    def list_larger_shapes(self) -> list[ClusterShape]:
        """Return shapes of more nodes than were measured, with as many workers on each as the largest one had."""
        steps, nodes = self.request.system, self.count_measured_nodes()
        if steps is None or nodes < 2:
            return []  # nothing was measured between nodes
        workers = int(steps.workers[steps.nodes == nodes].max())
        return [ClusterShape(nodes * factor, workers * factor) for factor in NODE_FACTORS]


def find_slowest_link(document: PlanDocument) -> NetworkLink | None:
    """Return the slowest links as fitted: those between nodes, or else within one; None without any."""
    links = document.system.links if document.system else {}
    return links.get("between") or links.get("local")


def span_values(values: list[float]) -> LimitRange | None:
    """Return a range a little wider than positive values; None without any."""
    return LimitRange(low=min(values) / LIMIT_MARGIN, high=max(values) * LIMIT_MARGIN) if values else None


def widen_value(value: float) -> LimitRange | None:
    """Return a range about a measured value; None for one that is not above 0."""
    return LimitRange(low=value / LINK_SPAN, high=value * LINK_SPAN, measured=value) if value > 0 else None
