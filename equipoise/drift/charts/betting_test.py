"""An anytime-valid test: evidence that requests differ from the reference, to be looked at as often as one likes.

For each figure a gambler bets that its ranks among the reference's are low, or high; if nothing has changed nobody
gains on average, so that the mean wealth reaches 1/alpha with a chance of alpha at most, ever (Ville's inequality).
Between steps a little wealth moves between the bets, so that a change may come late (the simple jumper of Vovk and
others, 2021). Bets allow for the reference being a sample itself (`Baseline.wider`).
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from equipoise.type_aliases import FloatArray

JUMP_SHARE = 0.01  # share of the wealth that changes its bet between steps


@dataclass(eq=False)
class BettingTest:
    """The gamblers' wealth."""

    wealth: FloatArray
    """(figures, 3): logarithms, of those who bet on low ranks, on nothing, on high ranks"""

    @classmethod
    def initial(cls, statistic_count: int) -> "BettingTest":
        """Before the first picture: one each, in equal parts."""
        return cls(np.full((statistic_count, 3), -np.log(3.0)))

    def update(self, low_gains: FloatArray, high_gains: FloatArray) -> None:
        """Some more pictures, by the sums of their logarithmic gains."""
        mixed = np.logaddexp(
            np.log1p(-JUMP_SHARE) + self.wealth, (np.log(JUMP_SHARE / 3) + logsumexp(self.wealth, 1))[:, None]
        )
        self.wealth = mixed + np.stack([low_gains, np.zeros_like(low_gains), high_gains], 1)

    def log_mean_wealth(self) -> float:
        """The logarithm of the mean wealth: 3 is a chance of one in twenty, for ever."""
        return float(logsumexp(self.wealth) - np.log(len(self.wealth)))
