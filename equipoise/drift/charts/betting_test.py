"""An anytime-valid test: evidence that requests differ from the reference, valid however often it is read.

For each statistic a gambler bets that its ranks among the reference are low, or high. Without a change nobody gains on
average, so the probability that the mean wealth ever reaches 1/alpha is at most alpha (Ville's inequality). Between
steps a small share of the wealth moves between the bets, so that a late change is found too (the simple jumper of Vovk
et al., 2021). Bets allow for the reference being a sample itself (`Baseline.rank_margin`).
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from equipoise.type_aliases import FloatArray

JUMP_SHARE = 0.01  # share of the wealth that is redistributed among the bets between steps


@dataclass(eq=False)
class BettingTest:
    """Wealth of the gamblers, one per statistic and bet."""

    wealth: FloatArray
    """(statistics, 3) logarithms: of bets on low ranks, on nothing, on high ranks"""

    @classmethod
    def initial(cls, statistic_count: int) -> "BettingTest":
        """Create the test before the first image: a wealth of 1 for each statistic, a third on each bet."""
        return cls(np.full((statistic_count, 3), -np.log(3.0)))

    def update(self, low_gains: FloatArray, high_gains: FloatArray) -> None:
        """Update the wealth by a step of images, given the sums of their logarithmic gains by statistic."""
        mixed = np.logaddexp(
            np.log1p(-JUMP_SHARE) + self.wealth, (np.log(JUMP_SHARE / 3) + logsumexp(self.wealth, 1))[:, None]
        )
        self.wealth = mixed + np.stack([low_gains, np.zeros_like(low_gains), high_gains], 1)

    def log_mean_wealth(self) -> float:
        """Return the logarithm of the mean wealth; without a change it ever reaches 3 with probability 1/20 at most."""
        return float(logsumexp(self.wealth) - np.log(len(self.wealth)))
