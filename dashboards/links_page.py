"""Page of a cluster's links: delay and rate by level, sums by every all-reduce algorithm, and which is the fastest."""

from collections.abc import Sequence

from dashboards.page import Note, Page, Section, SectionPart
from dashboards.panels.links import (
    backend_ratio,
    build_sums_panel,
    bytes_table,
    links_table,
    list_sum_timings,
    ranges_table,
)
from dashboards.theme import format_seconds, format_significant
from equipoise.formatting import capitalize_first, format_bit_rate, format_bytes, pluralize
from equipoise.parallel.fastest_ranges import FastestRange, find_fastest_ranges
from equipoise.planning.exchanges.link_report import LinkReport, LinkTiming

CLOSE_SIZES = (
    "No closed forms: the largest size must be at least 8 times the smallest, so that delay and rate can be told apart."
)
NO_COUNTERS = "No bytes were counted: the messages of these workers do not pass counters of the kernel."


def build_links_page(report: LinkReport) -> Page:
    """Build the page of the links of a cluster."""
    shape = f"{pluralize(report.ranks, 'worker')} on {pluralize(report.nodes, 'node')}"
    return Page(
        title=f"Links: {shape}",
        lead=f"How long {shape} take to sum a tensor, by {report.backend} (backend) and by each all-reduce algorithm.",
        sections=[
            Section(
                title="The fastest algorithm by size",
                paragraphs=[f"{capitalize_first(text)}." for text in describe_fastest_ranges(report)],
                parts=[ranges_table(report)],
            ),
            Section(
                title="Levels of the network",
                paragraphs=[f"{capitalize_first(text)}." for text in describe_links(report.links)],
                parts=[links_table(report.links)],
            ),
            Section(title="Time of a sum", parts=[*closed_form_notes(report), build_sums_panel(report)]),
            Section(
                title="Bytes that leave a worker", paragraphs=describe_counters(report), parts=[bytes_table(report)]
            ),
        ],
    )


def describe_links(links: Sequence[LinkTiming]) -> list[str]:
    """Return the delay and the rate of each level of the network in words."""
    return [
        f"{link.level}: {format_seconds(link.delay_seconds)} for a small message,"
        f" {format_bit_rate(link.bytes_a_second)} for a large one"
        + (f", the slowest of {link.pairs} pairs of workers" if link.pairs > 1 else "")
        for link in links
    ]


def describe_fastest_ranges(report: LinkReport) -> list[str]:
    """Return in words which algorithm is the fastest for tensors of which size, a sentence for each range."""
    return [describe_range(report, part) for part in find_fastest_ranges(list_sum_timings(report))]


def summarize_links(report: LinkReport) -> str:
    """Return in a few words the slowest links of a cluster, and the fastest algorithm for its largest sums."""
    slowest = min(report.links, key=lambda link: link.bytes_a_second, default=None)
    rate = f"{format_bit_rate(slowest.bytes_a_second)} {slowest.level}, " if slowest else ""
    *_, largest = find_fastest_ranges(list_sum_timings(report))
    return f"{rate}{largest.algorithm} the fastest for {format_bytes(report.sizes[-1])}"


def describe_range(report: LinkReport, part: FastestRange) -> str:
    """Return a range of sizes, its fastest algorithm and what the backend takes there in words."""
    similar = f"; {', '.join(part.similar)} within 5 % of it" if part.similar else ""
    start, stop = format_bytes(part.start_bytes), format_bytes(part.stop_bytes)
    sizes = f"from {start} to {stop}" if start != stop else f"at {start}"
    if part.algorithm == "backend":
        return f"{sizes} the backend's own sum is the fastest{similar}"
    low, high = sorted(backend_ratio(report, part, size) for size in (part.start_bytes, part.stop_bytes))
    ratios = " to ".join(dict.fromkeys(format_significant(ratio) for ratio in (low, high)))
    return f"{sizes} `{part.algorithm}` is the fastest{similar}; the backend's own sum takes {ratios} times as long"


def describe_counters(report: LinkReport) -> list[str]:
    """Return in words what the kernel's counters hold."""
    schedule = "The schedule of an algorithm says which bytes it sends; the table has the mean over workers."
    if not report.interfaces:
        return [schedule, NO_COUNTERS]
    names = " and ".join(f"`{name}`" for name in report.interfaces)
    counted = (
        f"The kernel counts what it sends on {names}, with headers, and with what other programs send meanwhile, which"
        " shows in small sums."
    )
    if "lo" in report.interfaces:
        counted += (
            " Messages between workers on one node pass `lo`, which counts them for all its workers together: the"
            " column has the mean of a worker."
        )
    return [schedule, counted]


def closed_form_notes(report: LinkReport) -> list[SectionPart]:
    """Return a note where the sizes are too close to each other for closed forms."""
    if any(row.closed_form_seconds is not None for row in report.sums):
        return []
    return [Note(name="close-sizes", text=CLOSE_SIZES)]
