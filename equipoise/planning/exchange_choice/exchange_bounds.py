"""Optimistic bounds: how much sooner each way of exchange could reach the target if it needed no more examples.

What does not gain 5 % even so is not tried, nor what would gain less than 25 % with the examples that it usually needs,
unless the user has named it: a few pairs of runs do not tell that from luck. Of the others at most one compression, one
`local:H` and one `async:S` are, and one `server` is timed: it needs no more examples. DiLoCo sends what local SGD
sends, as often, so that its bound is the same: it is tried after `local:H`, at the interval that is best there, and not
as a candidate of its own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from equipoise.planning.exchange_choice.critical_interval import excess_steps, find_best_interval
from equipoise.planning.exchange_choice.exact_fits import ExactFits
from equipoise.planning.exchange_choice.exchange_costs import ExchangeCosts
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.parameter_servers.asynchronous_rate import mean_staleness
from equipoise.planning.step_time_model import StepSettings

MIN_GAIN = 1.05  # times sooner than the best exact plan
MIN_EXPECTED_GAIN = 1.25  # times sooner with the usual examples; three pairs of runs tell their ratio within 15 to 20 %
COMPRESSIONS = ("bf16", "int8", "powersgd:4", "topk:0.01")
INTERVALS = tuple(2**power for power in range(1, 9))
DEFAULT_CANDIDATES = (*COMPRESSIONS, *(f"local:{interval}" for interval in INTERVALS))
PRIOR_CRITICAL_INTERVAL = 64.0  # in steps, before any trial: 4 to 16 steps needed 1.1 to 1.3 times the examples
PRIOR_CRITICAL_STALENESS = 15.0  # in gradients, before any trial: 3 needed 1.2 times the examples, without momentum
PRIOR_RATIOS = {"bf16": 1.0, "int8": 1.1, "powersgd": 1.2, "topk": 1.6}  # before any trial, as seen on digits


@dataclass(frozen=True, kw_only=True)
class ExchangeBound:
    """Optimistic bound of a way of exchange at the setting where it is best."""

    exchange: str
    """way of exchange"""
    nodes: int
    """number of nodes"""
    workers: int
    """workers on all nodes"""
    batch: int
    """examples per worker and step"""
    lr: float | None
    """best learning rate of exact sums at this global batch"""
    step_seconds: float
    """predicted seconds of a step"""
    max_speedup: float
    """how many times sooner it could be than the best exact plan, if it needed no more examples"""
    prior_speedup: float
    """how many times sooner with the examples that it usually needs, before any trial"""

    @property
    def global_batch(self) -> int:
        """Examples per optimizer step of all workers."""
        return self.workers * self.batch

    @property
    def step_settings(self) -> StepSettings:
        """Setting as arrays of length 1."""
        return StepSettings(*(np.array([value], float) for value in (self.nodes, self.workers, self.batch)))

    @property
    def may_gain(self) -> bool:
        """Whether it could be enough sooner to be worth trials."""
        return self.max_speedup >= MIN_GAIN

    @property
    def is_worth_trials(self) -> bool:
        """Whether a sweep could tell its gain from luck, if it needs the usual examples."""
        return self.may_gain and (self.prior_speedup >= MIN_EXPECTED_GAIN or not self.needs_trials)

    @property
    def is_sync(self) -> bool:
        """Whether workers exchange every H steps, rather than less in every step."""
        return parse_exchange(self.exchange).interval_family is not None

    @property
    def is_asynchronous(self) -> bool:
        """Whether workers do not wait for each other."""
        return parse_exchange(self.exchange).sync == "async"

    @property
    def needs_trials(self) -> bool:
        """Whether it may need other examples than exact sums."""
        return not parse_exchange(self.exchange).learns_exactly

    @property
    def group(self) -> str:
        """Kind of the way of exchange, of which one is tried at most."""
        if not self.needs_trials:
            return "exact"
        return "interval" if self.is_sync else "asynchronous" if self.is_asynchronous else "compression"


def bound_exchanges(
    fits: ExactFits, costs: ExchangeCosts, names: Iterable[str] = DEFAULT_CANDIDATES
) -> list[ExchangeBound]:
    """Return the bound of each way of exchange whose costs are known, the largest speed-up first."""
    known = [name for name in dict.fromkeys(names) if costs.missing_facts(name) is None]
    bounds = [bound_exchange(fits, costs, name) for name in known]
    return sorted(bounds, key=lambda bound: (-bound.max_speedup, bound.exchange))


def bound_exchange(fits: ExactFits, costs: ExchangeCosts, name: str) -> ExchangeBound:
    """Return the bound of a way of exchange over all settings."""
    steps = costs.step_seconds(name, fits.settings)
    seconds = fits.examples / fits.global_batches * steps
    best = int(seconds.argmin())
    option = fits.options[best]
    max_speedup = fits.reference.seconds / float(seconds[best])
    return ExchangeBound(
        exchange=name,
        nodes=option.nodes,
        workers=option.workers,
        batch=option.batch,
        lr=option.lr,
        step_seconds=float(steps[best]),
        max_speedup=max_speedup,
        prior_speedup=max_speedup / expect_ratio(name, option.workers),
    )


def expect_ratio(name: str, workers: int) -> float:
    """Return the examples ratio to expect before any trial."""
    method = parse_exchange(name)
    drift = excess_steps(method.interval, workers) / PRIOR_CRITICAL_INTERVAL
    if method.sync == "async":
        drift = mean_staleness(workers, method.staleness) / PRIOR_CRITICAL_STALENESS
    return (1 + drift) * PRIOR_RATIOS.get(method.compression.partition(":")[0], 1.0)


def select_survivors(bounds: Sequence[ExchangeBound], are_named: bool = False) -> list[ExchangeBound]:
    """Return the ways of exchange to try, at most one of each kind, the most promising first.

    Of those that may gain, the one with the largest speed-up by the usual examples counts: by the bound alone the
    rarest exchange and the smallest share would always win. Those that a user has named need no gain that trials can
    tell from luck.
    """
    groups: dict[str, ExchangeBound] = {}
    for bound in sorted(bounds, key=lambda bound: (-bound.prior_speedup, bound.exchange)):
        is_tried = bound.may_gain if are_named else bound.is_worth_trials
        if is_tried and parse_exchange(bound.exchange).sync != "diloco":
            groups.setdefault(bound.group, bound)
    return sorted(groups.values(), key=lambda bound: -bound.prior_speedup)


def next_interval(bound: ExchangeBound, costs: ExchangeCosts, critical_steps: float, tried: Iterable[int]) -> int:
    """Return an interval to try beside those tried, with which Hc can be fitted: near the best one by Hc' so far.

    Without room for a new power of two near it, a quarter or four times what was tried follows.
    """
    compute, exchange = split_step(bound, costs)
    best = find_best_interval(critical_steps, exchange, compute)
    tried = sorted(tried)
    choices = {interval for value in tried for interval in (value // 4, 4 * value) if 2 <= interval <= INTERVALS[-1]}
    choices |= {interval for interval in INTERVALS if min(abs(np.log2(interval / value)) for value in tried) >= 1}
    span = {interval for interval in choices if max(*tried, interval) >= 4 * min(*tried, interval)}
    return min((span or choices) - {*tried}, key=lambda interval: (abs(np.log2(interval / best)), interval))


def split_step(bound: ExchangeBound, costs: ExchangeCosts) -> tuple[float, float]:
    """Return the seconds of computing in a step, and those of one exchange, at the setting of a bound."""
    method = parse_exchange(bound.exchange)
    kind = f"/{method.compression}" if method.compression != "none" else ""
    every, rare = (float(costs.step_seconds(f"local:{interval}{kind}", bound.step_settings)[0]) for interval in (1, 2))
    exchange = 2 * (every - rare)
    return max(every - exchange, 1e-9), max(exchange, 0.0)
