"""What a sweep says of other ways of exchange before it tries any."""

from collections.abc import Sequence

from equipoise.formatting import format_number
from equipoise.planning.exchange_choice.exchange_bounds import ExchangeBound


def describe_no_gain(bounds: Sequence[ExchangeBound]) -> str:
    """Say in a line that no other way of exchange is worth trials, and how much the best one could gain."""
    if not bounds:
        return "no other way of exchange is tried: what they would take is not known here"
    if not bounds[0].may_gain:
        return f"no other way of exchange is tried: the best, {bounds[0].exchange}, would be {format_bound(bounds[0])}"
    best = max(bounds, key=lambda bound: bound.prior_speedup)
    expected = f"{format_number(best.prior_speedup)} times as fast, which a few runs do not tell from luck"
    return (
        f"no other way of exchange is tried: with the usual examples the best, {best.exchange}, would be"
        f" {expected if best.prior_speedup > 1 else 'no faster'}; --exchanges {best.exchange} tries it"
    )


def format_bound(bound: ExchangeBound) -> str:
    """Format an optimistic bound as a phrase."""
    return f"at most {format_number(bound.max_speedup)} times as fast, if it needed no more examples"
