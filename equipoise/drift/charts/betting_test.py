"""An anytime-valid test: evidence that requests differ from the reference, to be looked at as often as one likes.

For each figure a gambler bets that its ranks among the reference's are low, or high; if nothing has changed nobody
gains on average, so that the mean wealth reaches 1/alpha with a chance of alpha at most, ever (Ville's inequality).
Between steps a little wealth moves between the bets, so that a change may come late (the simple jumper of Vovk and
others, 2021). Bets allow for the reference being a sample itself (`Baseline.wider`).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Array = NDArray[Any]

JUMP = 0.01  # share of the wealth that changes its bet between steps


@dataclass(eq=False)
class Evidence:
    """The gamblers' wealth."""

    wealth: Array
    """(figures, 3): logarithms, of those who bet on low ranks, on nothing, on high ranks"""

    @classmethod
    def begun(cls, figures: int) -> "Evidence":
        """Before the first picture: one each, in equal parts."""
        return cls(np.full((figures, 3), -np.log(3.0)))

    def step(self, low: Array, high: Array) -> None:
        """Some more pictures, by the sums of their logarithmic gains."""
        mixed = np.logaddexp(np.log1p(-JUMP) + self.wealth, (np.log(JUMP / 3) + logsumexp(self.wealth, 1))[:, None])
        self.wealth = mixed + np.stack([low, np.zeros_like(low), high], 1)

    def value(self) -> float:
        """The logarithm of the mean wealth: 3 is a chance of one in twenty, for ever."""
        return float(logsumexp(self.wealth) - np.log(len(self.wealth)))
