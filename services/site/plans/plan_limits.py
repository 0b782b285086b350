"""Limits of a plan as texts of a form or of the API, in the words of `equipoise plan`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from dashboards.theme import format_significant
from equipoise.errors import EquipoiseError
from equipoise.planning.devices.device_prices import CostLimits
from equipoise.planning.replanning.link_change import LinkChange
from equipoise.planning.replanning.replanner import LimitRange, LimitRanges, PlanLimits
from jobs.plan import parse_dollars, parse_duration, parse_prices
from services.http.query_numbers import parse_whole_number

MAX_TEXT_LENGTH = 200
MAX_NODES = 10**6
MIN_MEGABITS, MAX_MEGABITS = 1e-3, 1e9
MAX_DELAY_MILLISECONDS = 1e6


@dataclass(frozen=True, kw_only=True)
class LimitTexts:
    """Limits as they are written; an empty one leaves things as they were measured."""

    deadline: str = ""
    """time such as 90s, 15m or 2h"""
    budget: str = ""
    """amount such as 40usd"""
    price: str = ""
    """price of a worker for an hour such as 3usd; of several kinds of workers as a10=1.2usd h100=4usd"""
    nodes: str = ""
    """most nodes"""
    rate: str = ""
    """Mbit/s of the slowest links"""
    delay: str = ""
    """milliseconds a message of the slowest links"""

    @classmethod
    def from_values(cls, values: Mapping[str, str]) -> "LimitTexts":
        """Select the limits from the parameters of a request."""
        texts = {field.name: str(values.get(field.name, "")).strip() for field in fields(cls)}
        for name, text in texts.items():
            if len(text) > MAX_TEXT_LENGTH:
                raise EquipoiseError("option-format", f"cannot use {name}: it has {len(text):,} characters")
        return cls(**texts)

    def as_values(self) -> dict[str, str]:
        """Return the limits that are set, by their names."""
        return {name: text for name, text in asdict(self).items() if text}

    def parse(self) -> PlanLimits:
        """Parse the limits; refuse what `equipoise plan` refuses, in its words."""
        if self.budget and not self.price:
            raise EquipoiseError(
                "option-missing",
                "--budget and --price belong together",
                "give the amount to spend and the price of a worker-hour",
            )
        rate = parse_limit_number("rate", self.rate, MIN_MEGABITS, MAX_MEGABITS, "Mbit/s")
        delay = parse_limit_number("delay", self.delay, 0.0, MAX_DELAY_MILLISECONDS, "ms")
        return PlanLimits(
            deadline_seconds=parse_duration(self.deadline) if self.deadline else None,
            cost=CostLimits(
                prices=parse_prices(self.price.split()),
                budget_dollars=parse_dollars("--budget", self.budget) if self.budget else None,
            ),
            max_nodes=parse_node_count(self.nodes),
            links=LinkChange(
                delay_seconds=None if delay is None else delay / 1000,
                bits_per_second=None if rate is None else rate * 1e6,
            ),
        )


def parse_limit_number(name: str, text: str, low: float, high: float, unit: str) -> float | None:
    """Parse a number of a form; None for an empty one."""
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        problem = f"cannot use {name}={text[:40]}: it must be a number from {low:g} to {high:g} {unit}"
        raise EquipoiseError("option-range", problem)
    return value


def parse_node_count(text: str) -> int | None:
    """Parse a number of nodes; None for an empty one."""
    return parse_whole_number("nodes", text, 1, MAX_NODES) if text else None


@dataclass(frozen=True, kw_only=True)
class SliderView:
    """Control of one limit: a field, and a slider that writes into it."""

    name: str
    label: str
    text: str
    hint: str
    low: float | None = None
    """lowest value in the unit of the field; None for a limit that cannot be moved"""
    high: float | None = None
    suffix: str = ""
    """unit that the slider writes behind the number"""
    steps: tuple[int, ...] = ()
    """values to choose from, where these are few"""

    @property
    def is_active(self) -> bool:
        """Whether the limit can be moved."""
        return self.low is not None and self.high is not None and self.low < self.high


def build_sliders(texts: LimitTexts, ranges: LimitRanges, dollars_per_hour: float | None) -> list[SliderView]:
    """Build the controls of all limits."""
    rate, delay = ranges.bits_per_second, ranges.delay_seconds
    measured_rate = "not known: time several workers, with a column gradient_bytes"
    if rate and rate.measured:
        measured_rate = f"Mbit/s of the slowest links; measured: {format_significant(rate.measured / 1e6)}"
    measured_delay = "not known: time one more number of workers"
    if delay and delay.measured:
        measured_delay = f"ms a message on the slowest links; measured: {format_significant(delay.measured * 1000)}"
    one_node = ranges.nodes[-1:] in ((), (1,))
    budget = ranges.budget_dollars(dollars_per_hour)
    (soonest, latest), (cheapest, dearest) = scale_range(ranges.deadline_seconds), scale_range(budget)
    (slowest, fastest), (shortest, longest) = scale_range(rate, 1e-6), scale_range(delay, 1e3)
    return [
        SliderView(name="deadline", label="deadline", text=texts.deadline, suffix="s", low=soonest, high=latest,
                   hint="time such as 90s, 15m or 2h; the cheapest plan in time"),
        SliderView(name="price", label="price", text=texts.price, suffix="usd", low=0.1, high=10.0,
                   hint="dollars of a worker for an hour, such as 3usd, or a10=1.2usd h100=4usd"),
        SliderView(name="budget", label="budget", text=texts.budget, suffix="usd", low=cheapest, high=dearest,
                   hint="dollars that the training may cost" if budget else "give a price first"),
        SliderView(name="nodes", label="nodes", text=texts.nodes, steps=() if one_node else ranges.nodes,
                   low=None if one_node else 0, high=None if one_node else len(ranges.nodes) - 1,
                   hint="steps on several nodes were not timed" if one_node else
                   f"most nodes; measured: up to {ranges.measured_nodes}"),
        SliderView(name="rate", label="link rate", text=texts.rate, hint=measured_rate, low=slowest, high=fastest),
        SliderView(name="delay", label="link delay", text=texts.delay, hint=measured_delay, low=shortest, high=longest),
    ]  # fmt: skip


def scale_range(limit: LimitRange | None, factor: float = 1.0) -> tuple[float | None, float | None]:
    """Return the ends of a range in the unit of a field; None without a range."""
    return (limit.low * factor, limit.high * factor) if limit else (None, None)
