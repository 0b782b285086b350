"""Which way of exchange takes the shortest step, at each rate and setting."""

from dataclasses import dataclass

from equipoise.number_bounds import Count, PositiveNumber


@dataclass(frozen=True, kw_only=True)
class FastestExchange:
    """Way of exchange with the shortest step at one rate and setting; how many examples it needs is another matter."""

    bits_per_second: PositiveNumber | None
    """rate of the slowest link; None where the table has none"""
    nodes: Count
    """number of nodes"""
    workers: Count
    """workers on all nodes"""
    batch: Count
    """examples per worker and step"""
    exchange: str
    """the fastest way of exchange; empty for exact sums of the gradient in every step"""
    seconds: PositiveNumber
    """seconds of its step"""
    compared: Count
    """ways of exchange whose steps were measured or predicted"""
