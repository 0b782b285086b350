"""Page of the profile of a run: where the time of a step goes, its timeline, layers, and what would help."""

from dashboards.links_page import describe_links
from dashboards.page import NumberCell, Page, Section, Table, TableCell
from dashboards.panels.links import links_table
from dashboards.panels.profiling.gains import build_gains_panel, format_gain, losses_table
from dashboards.panels.profiling.layers import build_layer_panels, layers_table
from dashboards.panels.profiling.step_memory import build_step_memory_panel, describe_step_memory
from dashboards.panels.profiling.step_parts import build_step_parts_panel, build_timeline_panel
from dashboards.theme import format_seconds, format_significant
from equipoise.formatting import capitalize_first, format_bytes, format_share, pluralize
from equipoise.profiling.advice import list_worthwhile
from equipoise.profiling.profile_report import ProfileReport, Proposal

MAX_PRINTED_LOSSES = 8
NOTHING_TO_GAIN = "nothing to gain here: no proposal is predicted to gain more than noise"


def build_profile_page(report: ProfileReport) -> Page:
    """Build the page of a profile."""
    return Page(
        title=f"Profile: {report.config.name}",
        lead=capitalize_first(describe_step(report)) + ".",
        sections=[
            Section(
                title="Where the time of a step goes",
                paragraphs=[capitalize_first(describe_largest_loss(report)) + ".", describe_cost(report)],
                parts=[losses_table(report), build_step_parts_panel(report), build_timeline_panel(report)],
            ),
            Section(
                title="What would help",
                paragraphs=describe_advice(report),
                parts=[build_gains_panel(report)] if report.proposals else [],
            ),
            *build_sync_section(report),
            Section(
                title="Layers",
                paragraphs=[describe_limits(report)],
                parts=[*build_layer_panels(report), layers_table(report)],
            ),
            *build_memory_section(report),
            *build_links_section(report),
        ],
    )


def build_sync_section(report: ProfileReport) -> list[Section]:
    """Build the section of synchronisation points; none where there are none."""
    if not report.sync_points:
        return []
    rows: list[list[TableCell]] = [
        [
            point.place,
            point.code,
            point.operation,
            NumberCell(point.calls, format_significant(point.calls)),
            NumberCell(point.seconds, format_seconds(point.seconds)),
            NumberCell(point.longest_seconds, format_seconds(point.longest_seconds)),
        ]
        for point in report.sync_points
    ]
    columns = ["line", "code", "waits for", "calls a step", "on the worker that waits least", "and most"]
    text = (
        "At these lines every worker waits for the others, or for its device. The worker that waits least shows what"
        " the call itself costs; what the others wait beyond that, they would wait elsewhere."
    )
    return [
        Section(
            title="Synchronisation points",
            paragraphs=[text],
            parts=[Table(name="sync-points", columns=columns, rows=rows)],
        )
    ]


def build_memory_section(report: ProfileReport) -> list[Section]:
    """Build the section of memory; none where it was not measured."""
    if report.memory is None:
        return []
    text = capitalize_first(describe_step_memory(report.memory, report.config.batch_size)) + "."
    return [Section(title="Memory", paragraphs=[text], parts=[build_step_memory_panel(report.memory)])]


def build_links_section(report: ProfileReport) -> list[Section]:
    """Build the section of the links between workers; none of one worker."""
    if not report.links:
        return []
    texts = [f"{capitalize_first(text)}." for text in describe_links(report.links)]
    text = "`equipoise links` times the sums of every all-reduce algorithm on them."
    return [Section(title="Links between workers", paragraphs=[*texts, text], parts=[links_table(report.links)])]


def describe_step(report: ProfileReport) -> str:
    """Return in words how long a step takes, and on what."""
    config, seconds = report.config, report.steps.seconds
    rate = format_significant(config.global_batch / seconds)
    workers = f"{pluralize(config.workers, 'worker')} on {pluralize(report.nodes, 'node')}"
    accumulation = f" x {config.grad_accumulation}" if config.grad_accumulation > 1 else ""
    return (
        f"{config.name} on {workers} x {config.batch_size}{accumulation}: a step takes {format_seconds(seconds)},"
        f" {rate} examples/s"
    )


def summarize_profile(report: ProfileReport) -> str:
    """Return how long a step takes and what takes most of it, for one cell of a table."""
    text = f"{format_seconds(report.steps.seconds)} a step"
    return f"{text}, most for {report.losses[0].name}" if report.losses else text


def describe_largest_loss(report: ProfileReport) -> str:
    """Return in words what takes most of a step."""
    if not report.losses:
        return "no part of a step stands out"
    loss = report.losses[0]
    share = format_share(loss.seconds / report.steps.seconds)
    return f"most goes to {loss.name}: {format_seconds(loss.seconds)} of a step, {share}"


def describe_cost(report: ProfileReport) -> str:
    """Return in words what measuring costs."""
    steps = report.steps
    return (
        f"A step with marks between its parts takes {format_seconds(steps.marked_seconds)}, one under the profiler"
        f" {format_seconds(steps.traced_seconds)}, of which {steps.traced_steps} are in the timeline."
    )


def describe_limits(report: ProfileReport) -> str:
    """Return in words what the machine reaches at best."""
    limits = report.limits
    if limits is None:
        return "What the machine reaches at best was not measured."
    return (
        f"At best a worker computes {format_significant(limits.flop_per_second / 1e9)} billion operations per second in"
        f" a product of matrices, and reads and writes {format_bytes(limits.bytes_per_second)} per second in a copy."
        " Operations of an example are those of products, convolutions and attention."
    )


def describe_advice(report: ProfileReport) -> list[str]:
    """Return in words what is worth trying, and what was tried."""
    worthwhile = list_worthwhile(report)
    if not worthwhile:
        return [capitalize_first(NOTHING_TO_GAIN) + "."]
    best = worthwhile[0]
    texts = [f"The largest gain is predicted for {best.name} (`{best.action}`): {format_gain(best.gain)} times."]
    if any(proposal.changes_learning for proposal in worthwhile):
        texts.append(
            "Another batch or number of workers changes what is learned from an example: more examples per second are"
            " not a shorter time to a target, which a sweep finds."
        )
    return texts


def describe_profile(report: ProfileReport) -> list[str]:
    """Return a profile as lines of terminal text."""
    whole = report.steps.seconds
    lines = [describe_step(report), f"  {'where it goes':<44}{'a step':>10}{'share':>8}  gain without it (80 %)"]
    lines += [
        f"  {loss.name[:43]:<44}{format_seconds(loss.seconds):>10}{format_share(loss.seconds / whole):>8}"
        f"  {format_gain(loss.gain)}"
        for loss in report.losses[:MAX_PRINTED_LOSSES]
    ]
    lines.append(f"  {'what would help':<44}gain (80 %)")
    lines += [f"  {proposal.name[:43]:<44}{describe_gain(proposal)}" for proposal in report.proposals]
    return lines if list_worthwhile(report) else [*lines, NOTHING_TO_GAIN]


def describe_gain(proposal: Proposal) -> str:
    """Return the gain of a proposal in words, with what trying it showed, and what to do."""
    tried = f", measured {format_significant(proposal.tried_gain)}: {proposal.verdict}" if proposal.verdict else ""
    return f"{format_gain(proposal.gain)}{tried}; {proposal.action}"
