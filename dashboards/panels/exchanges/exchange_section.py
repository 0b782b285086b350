"""Section of a plan's page on ways of exchange: what to do with each, in words, panels and a table."""

from dashboards.page import NumberCell, Section, SectionPart, Table, TableCell
from dashboards.panels.exchanges.best_exchange_map import build_map_panel
from dashboards.panels.exchanges.exchange_times import build_times_panel, speedup_cell
from dashboards.panels.exchanges.time_estimates import has_exact_plan, has_exchange_options, label_exchange
from dashboards.theme import format_interval, format_seconds, format_significant
from equipoise.formatting import format_bit_rate, format_bytes
from equipoise.planning.document import PlanDocument
from equipoise.planning.exchange_choice.exchange_verdict import ExchangeVerdict, SwitchesAt
from equipoise.planning.exchanges.exchange_name import parse_exchange

VERDICT_COLUMNS = ["exchange", "verdict", "bytes a step", "encoding", "examples ratio", "times sooner", "reason"]


def build_exchange_section(document: PlanDocument) -> Section | None:
    """Build the section on ways of exchange; None for a plan that says nothing of others than its own."""
    if not has_exchange_options(document):
        return None
    panels = [panel for build in (build_map_panel, build_times_panel) if (panel := build(document))]
    tables: list[SectionPart] = [verdicts_table(document)] if document.exchanges else []
    return Section(title="Ways of exchange", paragraphs=describe_choice(document), parts=[*panels, *tables])


def describe_choice(document: PlanDocument) -> list[str]:
    """Return in words how the plan exchanges and why, and on which networks that would change."""
    paragraphs = []
    if plan := document.plan:
        if has_exact_plan(document):
            text = "The plan sums gradients exactly in every step."
        else:
            text = f"The plan exchanges as `{plan.exchange}`."
        reasons = [verdict.why for verdict in document.exchanges if verdict.exchange == plan.exchange]
        paragraphs.append(" ".join([text, *(f"Reason: {why}." for why in reasons)]))
    if document.switches_at:
        paragraphs.append(describe_switches(document.switches_at, document))
    return paragraphs


def describe_switches(switches: SwitchesAt, document: PlanDocument) -> str:
    """Return in words the networks at which the best way of exchange changes."""
    exchange_map = document.exchange_map
    own_rate, own_delay = (
        (exchange_map.own_bits_per_second, exchange_map.own_delay_seconds) if exchange_map else (None, None)
    )
    clauses = []
    if switches.bits_per_second is not None:
        at_delay = f" at the measured delay of {format_seconds(own_delay)}" if own_delay else ""
        clauses.append(f"below {format_bit_rate(switches.bits_per_second / 8)}{at_delay}")
    if switches.delay_seconds is not None:
        at_rate = f" at the measured {format_bit_rate(own_rate / 8)}" if own_rate else ""
        clauses.append(f"above {format_seconds(switches.delay_seconds)} a message{at_rate}")
    if not clauses and exchange_map is None:
        return "No other rate was found at which the answer changes."
    if not clauses:
        return (
            "The answer is the same at every rate with the measured delay, and at every delay with the measured rate."
        )
    return f"Another way of exchange is faster than exact sums {', and '.join(clauses)}."


def verdicts_table(document: PlanDocument) -> Table:
    """Return the table of all ways of exchange that were considered, with the reason for each verdict."""
    rows = [list_verdict_cells(verdict) for verdict in document.exchanges]
    return Table(name="exchanges", columns=VERDICT_COLUMNS, rows=rows)


def list_verdict_cells(verdict: ExchangeVerdict) -> list[TableCell]:
    """Return the cells of a way of exchange."""
    ratio, sent = verdict.examples_ratio, verdict.sent_bytes
    return [
        label_exchange(verdict.exchange),
        verdict.verdict,
        NumberCell(sent, "-" if sent is None else format_bytes(sent)),
        encoding_cell(verdict),
        NumberCell(ratio.value if ratio else None, format_interval(ratio)),
        speedup_cell(verdict),
        verdict.why,
    ]


def encoding_cell(verdict: ExchangeVerdict) -> NumberCell:
    """Return the milliseconds of encoding in a step; a dash for a compression whose encoding was not timed."""
    seconds = verdict.encode_seconds
    if seconds is None or (not seconds and parse_exchange(verdict.exchange).compression != "none"):
        return NumberCell(None, "-")
    return NumberCell(seconds, f"{format_significant(1000 * seconds)} ms")
