"""Ways of exchange of a plan in the words and numbers that its panels and its table share."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from equipoise.planning.document import PlanDocument
from equipoise.planning.exchange_choice.exchange_verdict import ExchangeMap, ExchangeVerdict
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.interval import IntervalEstimate

EXACT_LABEL = "exact sums"
SAME_TIME = 0.005  # relative difference of two times of one setting, which were rounded on their way


class TimeEstimate(NamedTuple):
    """Time to the target with one way of exchange; the interval is one point where it is not known."""

    exchange: str
    seconds: IntervalEstimate
    is_measured: bool
    is_bound: bool = False
    """whether the time is only a bound: that of an exchange that needs no more examples than exact sums"""


def label_exchange(name: str) -> str:
    """Return the name of a way of exchange for people: that of exact sums in every step is empty."""
    return name or EXACT_LABEL


def has_exchange_options(document: PlanDocument) -> bool:
    """Return whether a plan says anything of ways of exchange other than its own."""
    return bool(document.exchanges) or document.exchange_map is not None


def estimate_exact_seconds(document: PlanDocument) -> TimeEstimate | None:
    """Return the time to the target of the best setting with exact sums, as far as the plan tells it.

    Others are so many times sooner than it; its interval is that of the setting which has this time.
    """
    plan = document.plan if has_exact_plan(document) else None
    settings = [*([plan] if plan else []), *document.options]
    for verdict in document.exchanges:
        if verdict.seconds and verdict.speedup:
            value = verdict.seconds.value * verdict.speedup.value
            same = (setting for setting in settings if abs(setting.seconds.value / value - 1) <= SAME_TIME)
            if setting := next(same, None):
                return TimeEstimate("", setting.seconds, setting.measured)
            return TimeEstimate("", IntervalEstimate(value=value, low=value, high=value), is_measured=False)
    return TimeEstimate("", plan.seconds, plan.measured) if plan else None


def has_exact_plan(document: PlanDocument) -> bool:
    """Return whether there is a plan, and it takes the exact sum of the gradient in every step."""
    return document.plan is not None and parse_exchange(document.plan.exchange).is_exact


def find_plan_estimate(document: PlanDocument) -> TimeEstimate | None:
    """Return the estimate of the way of exchange that the plan has; None without one."""
    name = None if document.plan is None else "" if has_exact_plan(document) else document.plan.exchange
    return next((estimate for estimate in list_time_estimates(document) if estimate.exchange == name), None)


def list_time_estimates(document: PlanDocument) -> list[TimeEstimate]:
    """Return the times to the target of all ways of exchange that have one, exact sums first."""
    exact = estimate_exact_seconds(document)
    others = [estimate for verdict in document.exchanges if (estimate := estimate_seconds(verdict, exact))]
    return [exact, *others] if exact else others


def estimate_seconds(verdict: ExchangeVerdict, exact: TimeEstimate | None) -> TimeEstimate | None:
    """Return the time to the target of a verdict, or else the shortest that its bound allows; None without both."""
    if verdict.seconds:
        return TimeEstimate(verdict.exchange, verdict.seconds, verdict.measured)
    if verdict.max_speedup is None or exact is None:
        return None
    value = exact.seconds.value / verdict.max_speedup
    bound = IntervalEstimate(value=value, low=value, high=value)
    return TimeEstimate(verdict.exchange, bound, is_measured=False, is_bound=True)


def list_best_options(exchange_map: ExchangeMap) -> list[int]:
    """Return the positions of the options that are the best somewhere on the map, in the order of the options."""
    return sorted({index for row in exchange_map.best for index in row})


def place_on_log_axis(values: Sequence[float]) -> list[float]:
    """Return rising values for a logarithmic axis: a zero comes as far below the next value as that is from its next.

    Alone, a zero becomes 1e-6.
    """
    positive = [value for value in values if value > 0]
    ratio = positive[1] / positive[0] if len(positive) > 1 else 10.0
    zero = positive[0] / ratio if positive else 1e-6
    return [value if value > 0 else zero for value in values]


def find_cell_edges(centers: Sequence[float]) -> list[float]:
    """Return the edges between cells around these positions of a logarithmic axis, one more than there are cells."""
    if len(centers) == 1:
        return [centers[0] / 2, centers[0] * 2]
    inner = [(low * high) ** 0.5 for low, high in pairwise(centers)]
    return [centers[0] ** 2 / inner[0], *inner, centers[-1] ** 2 / inner[-1]]
