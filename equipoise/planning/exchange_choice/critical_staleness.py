"""Examples ratio of workers that do not wait for each other: it rises with the age of the weights behind a gradient.

    rho(tau) = 1 + tau / tau_c        tau: gradients of others between a pull and the update with its gradient

tau_c is the critical staleness, at which twice the examples are needed. On n equal workers tau is n - 1, and less with
a bound S below that. As with the critical interval it is fitted to log ratios, and three values of tau are needed:
`async:S` with as many S on one number of workers.
"""

from collections.abc import Sequence

import numpy as np

from equipoise.planning.exchange_choice.critical_interval import (
    CRITICAL_INTERVAL_DRAWS,
    MAX_RATIO_SPREAD,
    RatioLine,
    fit_ratio_line,
)
from equipoise.planning.exchange_choice.examples_ratio import ExamplesRatio
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.parameter_servers.asynchronous_rate import mean_staleness
from equipoise.planning.step_time_fit import INTERVAL_QUANTILES
from equipoise.type_aliases import FloatArray

MIN_STALENESSES = 3  # values of tau above 0
MIN_STALENESS_RATIO = 1.9  # largest tau over the smallest: those of S = 1 to 3 on four workers are 1.5 to 3


class CriticalStaleness(RatioLine):
    """Critical staleness tau_c of asynchronous updates, in gradients of one worker."""

    def missing_measurements(self, staleness: int, workers: int) -> str | None:
        """Return what must be measured before the ratio at this S can be predicted; None if it can."""
        tau, largest = mean_staleness(workers, staleness), max(map(find_staleness, self.ratios))
        if tau > largest * (1 + 1e-9):
            return f"runs with gradients {tau:.2g} updates old in the mean; those measured are {largest:.2g}"
        return None

    def predict_ratio(self, staleness: int, workers: int) -> IntervalEstimate:
        """Return the examples ratio of so many workers with this bound S."""
        value = 1 + self.slope * mean_staleness(workers, staleness)
        low, high = np.quantile(self.sample_ratio(staleness, workers), INTERVAL_QUANTILES)
        return IntervalEstimate(value=value, low=min(float(low), value), high=max(float(high), value))

    def sample_ratio(self, staleness: int, workers: int) -> FloatArray:
        """Return the examples ratio in each draw."""
        tau = mean_staleness(workers, staleness)
        noise = np.random.default_rng(staleness).standard_normal(CRITICAL_INTERVAL_DRAWS) if tau else 0.0
        return np.asarray((1 + self.slope_draws * tau) * np.exp(self.lack_of_fit_sd * noise))


def find_staleness(ratio: ExamplesRatio) -> float:
    """Return the mean staleness of the runs of a ratio: they are on workers of one process, which are equal."""
    return mean_staleness(ratio.key.workers, parse_exchange(ratio.key.exchange).staleness)


def fit_critical_staleness(ratios: Sequence[ExamplesRatio]) -> CriticalStaleness | str:
    """Fit tau_c to ratios at several values of tau, or return what must be measured for it."""
    usable = tuple(ratio for ratio in ratios if not ratio.is_lower_bound)
    taus = sorted({tau for ratio in usable if (tau := find_staleness(ratio)) > 0})
    if len(taus) < MIN_STALENESSES:
        return (
            f"runs that reach the target with {MIN_STALENESSES} values of S below the number of workers; there are"
            f" {len(taus)}"
        )
    if taus[-1] < MIN_STALENESS_RATIO * taus[0]:
        return f"runs with gradients of more different age than {taus[0]:.2g} to {taus[-1]:.2g} updates"
    values = np.array([find_staleness(ratio) for ratio in usable])
    critical = fit_ratio_line(CriticalStaleness, values, usable)
    oldest = max(usable, key=find_staleness).key
    widest = critical.predict_ratio(parse_exchange(oldest.exchange).staleness, oldest.workers)
    if widest.high > MAX_RATIO_SPREAD * widest.low:
        return f"more seeds: gradients {taus[-1]:.2g} updates old need {widest.low:.2g} to {widest.high:.2g} times"
    return critical
