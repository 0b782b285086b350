"""Estimated values with their intervals."""

from dataclasses import dataclass

from equipoise.number_bounds import NonNegativeNumber


@dataclass(frozen=True, kw_only=True)
class IntervalEstimate:
    """Estimated value with its interval: of 80 % in plans, of 95 % in verdicts on drift."""

    value: NonNegativeNumber
    """estimate"""
    low: NonNegativeNumber
    """lower end of the interval"""
    high: NonNegativeNumber
    """upper end of the interval"""

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"an interval from {self.low:g} to {self.high:g} is impossible")

    def includes(self, value: float) -> bool:
        """Return whether a value lies inside the interval."""
        return self.low <= value <= self.high
