"""Step times with other ways of exchange and at other rates, as terminal text."""

from equipoise.formatting import make_printable
from equipoise.planning.document import StepTimePrediction, StepTimeSection
from equipoise.planning.exchanges.fastest_exchange import FastestExchange
from equipoise.planning.exchanges.predict_exchanges import EXACT_TEXT

MAX_PRINTED_ROWS = 24  # of predictions, and of gaps; plan.json has all


def format_exchanges(section: StepTimeSection | None, is_requested: bool) -> list[str]:
    """Format the fastest exchange at each rate and, where requested, the predictions and what they lack."""
    if section is None:
        return []
    fitted = section.exchange, section.bits_per_second
    others = [row for row in section.predictions if (row.exchange, row.bits_per_second) != fitted and not row.measured]
    lines = list(map(format_fastest, section.fastest_exchanges[:MAX_PRINTED_ROWS]))
    if is_requested:
        lines += map(format_prediction, others[:MAX_PRINTED_ROWS])
        lines += [f"left out: {gap}" for gap in section.missing[:MAX_PRINTED_ROWS]]
        hidden = max(0, len(others) - MAX_PRINTED_ROWS) + max(0, len(section.missing) - MAX_PRINTED_ROWS)
        lines += [f"and {hidden} more in plan.json"] if hidden else []
    return list(map(make_printable, lines))


def format_fastest(fastest: FastestExchange) -> str:
    """Format the exchange with the shortest step at one rate and setting."""
    return (
        f"shortest step{format_rate(fastest.bits_per_second)} of {fastest.compared} exchanges, {fastest.workers} x"
        f" {fastest.batch} on {fastest.nodes} nodes: {fastest.exchange or EXACT_TEXT}, {1000 * fastest.seconds:,.4g} ms"
    )


def format_prediction(row: StepTimePrediction) -> str:
    """Format the predicted step time with one exchange at one rate."""
    seconds, low, high = (1000 * (value or 0.0) for value in (row.seconds, row.low, row.high))
    return (
        f"{row.exchange or EXACT_TEXT}{format_rate(row.bits_per_second)}, {row.workers} x {row.batch} on {row.nodes}"
        f" nodes: a step takes {seconds:,.4g} ms ({low:,.4g} to {high:,.4g})"
    )


def format_rate(rate: float | None) -> str:
    """Format the rate of a link in Mbit/s; an empty text where it is unknown."""
    return "" if rate is None else f" at {rate / 1e6:,.4g} Mbit/s"
