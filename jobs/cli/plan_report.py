"""A plan as terminal text and as pages beside plan.json, with the predictions that were requested."""

from collections.abc import Sequence
from pathlib import Path

from dashboards.experiments import Experiment, Sweep
from dashboards.reports import write_pages
from equipoise.formatting import format_bit_rate, format_bytes, format_number, format_range, make_printable, pluralize
from equipoise.planning.build_document import PlanRequest
from equipoise.planning.confirmation import ConfirmationResult
from equipoise.planning.devices.device_sections import find_section, split_section
from equipoise.planning.devices.device_text import format_dollars, format_kind, format_soonest_options, has_dollars
from equipoise.planning.document import PlanDocument, PlanEntry, PredictedSetting
from equipoise.planning.energy.plan_energy import format_energy, format_energy_header
from equipoise.planning.exchange_choice.exchange_verdict import ExchangeVerdict
from equipoise.planning.exchange_choice.exchange_verdicts import format_momentum
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.exchanges.fastest_exchange import FastestExchange
from equipoise.planning.exchanges.predict_exchanges import EXACT_TEXT
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.plan import ClusterShape
from equipoise.planning.sections.examples_types import ExamplesSection
from equipoise.planning.sections.step_time_types import NetworkLink, StepTimePrediction, StepTimeSection
from jobs.cli.target_report import describe_targets

EXTRAPOLATION_WARNING_FACTOR = 2  # times the most workers timed: predictions for more carry a warning
MAX_LINK_BYTES_PER_SECOND = 1e13  # beyond any link: the fit has found no time that grows with the bytes
MAX_PRINTED_SETTINGS = 12  # of the Pareto front
MAX_PRINTED_EXCHANGES = 24  # predictions, and gaps; plan.json has all


def format_plan(document: PlanDocument) -> str:
    """Format the plan as a table of its alternatives, the reason for it, the network and the warnings."""
    lines = []
    if settings := list_printed_settings(document):
        header = "   nodes workers  batch  global       lr     seconds (80 %)            worker-seconds"
        lines.append(header + ("     dollars" if has_dollars(document) else "") + format_energy_header(document))
    lines += [format_setting(setting, document) for setting in settings]
    if plan := document.plan:
        lines.append(
            f"plan, {document.status}: {pluralize(plan.workers, 'worker')} x {plan.batch}"
            f" on {pluralize(plan.nodes, 'node')}{format_kind(plan.device)}"
            f"{format_way(plan.exchange)}{format_momentum(plan.momentum)}: {plan.why}"
        )
    lines += [fit.verdict for fit in document.system.devices if fit.verdict] if document.system else []
    lines += format_verdicts(document)
    lines += describe_targets(document)
    links = document.system.links if document.system else {}
    lines += [line for level, link in links.items() if (line := format_link(level, link))]
    lines += [f"note: {warning}" for warning in document.warnings]
    return "\n".join(map(make_printable, lines))


def format_confirmation(result: ConfirmationResult) -> str:
    """Format what a training run with the settings of a plan says of it."""
    predicted = result.predicted
    workers = pluralize(result.workers, "worker")
    setting = f"plan {result.status}: a run with {workers} x {result.batch}{format_way(result.exchange)}"
    # wider than the interval of the table, which is that of an average over seeds
    interval, mean = format_range(predicted.low, predicted.high), format_number(predicted.value)
    expected = f"predicted {interval} s for one run ({mean} s on average)"
    if result.seconds is None:
        return f"{setting} ended without reaching the target ({make_printable(result.outcome)}); {expected}"
    return f"{setting} took {format_number(result.seconds)} s to the target, {result.side} the {expected}"


def list_printed_settings(document: PlanDocument) -> list[PredictedSetting]:
    """List the fastest settings of the Pareto front, and the plan, also where a faster one is only predicted."""
    settings: list[PredictedSetting] = [*document.front[:MAX_PRINTED_SETTINGS]]
    if settings and document.plan and not any(is_plan_setting(setting, document) for setting in settings):
        settings.append(document.plan)
    return sorted(settings, key=lambda setting: setting.seconds.value)


def format_setting(setting: PredictedSetting, document: PlanDocument) -> str:
    """Format a setting of the front as a row of the table, which marks the plan and the knee."""
    mark = "*" if is_plan_setting(setting, document) else " "
    knee = "  knee" if document.knee and is_same_setting(setting, document.knee) else ""
    source = "  measured" if setting.measured else "  predicted"
    way = format_way(find_way(setting, document))
    lr = "" if setting.lr is None else f"{setting.lr:.4g}"
    seconds = setting.seconds
    return (
        f" {mark} {setting.nodes:>5} {setting.workers:>7} {setting.batch:>6} {setting.global_batch:>7}"
        f" {lr:>8}  {format_number(seconds.value, 4):>9} ({format_range(seconds.low, seconds.high, 4)})"
        f"  {format_number(setting.worker_seconds, 4):>12}{format_dollars(setting, document)}"
        f"{format_energy(setting, document)}{source}{knee}{format_kind(setting.device)}{way}"
    )


def write_plan_pages(request: PlanRequest, document: PlanDocument, out: Path) -> list[Path]:
    """Write the plan's pages to a folder and return their paths."""
    sweep = Sweep(plan=document, step_times=request.system, examples_to_target=request.statistical)
    return write_pages(Experiment(kind="plan", path=out, content=sweep))


def format_predictions(
    document: PlanDocument, shape_by_text: dict[str, ClusterShape], global_batches: tuple[int, ...]
) -> list[str]:
    """Format the predictions of --predict-at (keyed by their text) and --predict-batch, a line each by device."""
    sections = [(part.device, part) for part in split_section(document.system)] if document.system else [(None, None)]
    lines = [
        *(
            f"at {text}{format_kind(device)}: {format_step_time(section, shape)}"
            for text, shape in shape_by_text.items()
            for device, section in sections
        ),
        *(
            f"at a global batch of {batch:,}: {format_examples_to_target(document.statistical, batch)}"
            f"{format_soonest_options(document, batch)}"
            for batch in global_batches
        ),
    ]
    return list(map(make_printable, lines))


def format_step_time(section: StepTimeSection | None, shape: ClusterShape) -> str:
    """Format the predicted step time on a cluster shape, or the measurements that are missing for it."""
    if section is None:
        return "needs --system"
    rows = section.fit_predictions
    times = [
        f"{milliseconds} at {row.batch}"
        for row in rows
        if (row.nodes, row.workers) == shape and (milliseconds := format_milliseconds(row))
    ]
    if not times:
        return f"needs {', '.join(section.missing)}"
    max_timed = max(row.workers for row in rows if row.measured)
    warning = (
        f"; no more than {pluralize(max_timed, 'worker')} were timed"
        if shape.workers > EXTRAPOLATION_WARNING_FACTOR * max_timed
        else ""
    )
    return f"a step takes {', '.join(times)} examples per worker{warning}"


def format_examples_to_target(section: ExamplesSection | None, global_batch: int) -> str:
    """Format the predicted examples to the target at a global batch, or what is missing for it."""
    if section is None:
        return "needs --statistical"
    for row in section.predictions:
        if row.global_batch == global_batch and row.examples is not None:
            return f"{row.examples:,.0f} examples ({row.low:,.0f} to {row.high:,.0f})"
    return "needs measurements of more global batches, or learning rates that reach the target with this one"


def format_milliseconds(row: StepTimePrediction) -> str:
    """Format the seconds of a step with their interval as milliseconds; an empty string without a prediction."""
    if row.seconds is None or row.low is None or row.high is None:
        return ""
    value, low, high = (format_number(1000 * seconds, 4) for seconds in (row.seconds, row.low, row.high))
    return f"{value} ms ({low} to {high})"


def format_link(level: str, link: NetworkLink) -> str:
    """Format the fitted rate of a network link in Mbit/s and its delay per message in milliseconds.

    Return an empty string if the rate is not known within a factor of two, or higher than any link's. Within one
    machine it often is: the time of an exchange is that of its calls, not of its bytes.
    """
    rate, delay = link.bytes_a_second, link.alpha_seconds
    if rate is None or delay is None or rate.high >= 2 * rate.low or rate.value > MAX_LINK_BYTES_PER_SECOND:
        return ""
    megabits, low, high = (f"{8e-6 * bytes_a_second:,.3g}" for bytes_a_second in (rate.value, rate.low, rate.high))
    where = "between nodes" if level == "between" else "within a node"
    return f"{where}: {megabits} Mbit/s ({low} to {high}), {1e3 * delay.value:.2g} ms per message"


def is_plan_setting(setting: PredictedSetting, document: PlanDocument) -> bool:
    """Return whether a row of the table is that of the plan: rows of other ways of exchange than the plan's are not."""
    plan = document.plan
    return plan is not None and find_way(setting, document) == plan.exchange and is_same_setting(setting, plan)


def find_way(setting: PredictedSetting, document: PlanDocument) -> str:
    """Return the way of exchange of a row of the table: its own, or that of the step times that were fitted."""
    if isinstance(setting, PlanEntry):
        return setting.exchange
    return find_section(document.system, setting.device).exchange if document.system else ""


def is_same_setting(first: PredictedSetting, second: PredictedSetting) -> bool:
    """Return whether two settings have the same nodes, workers, batch size and device."""
    settings = [(setting.nodes, setting.workers, setting.batch, setting.device) for setting in (first, second)]
    return settings[0] == settings[1]


def format_way(exchange: str) -> str:
    """Format how workers exchange, as the end of a phrase; empty for exact sums."""
    return f", exchanging by {exchange}" if exchange else ""


def format_verdicts(document: PlanDocument) -> list[str]:
    """Format what the plan says of other ways of exchange as a table, and where the answer changes."""
    if not document.exchanges:
        return []
    lines = ["   exchange          seconds (80 %)            sent a step  times the examples      verdict"]
    lines += map(format_verdict, document.exchanges)
    switch = document.switches_at
    if switch and switch.bits_per_second is not None:
        lines.append(f"the answer changes at {format_bit_rate(switch.bits_per_second / 8)} on the slowest links")
    if switch and switch.delay_seconds is not None:
        delay = format_number(1e3 * switch.delay_seconds)
        lines.append(f"the answer changes at {delay} ms a message on the slowest links")
    return lines


def format_verdict(verdict: ExchangeVerdict) -> str:
    """Format the verdict on a way of exchange as a row."""
    sent = "-" if verdict.sent_bytes is None else format_bytes(verdict.sent_bytes)
    limit = "" if verdict.max_speedup is None else f", at most {format_number(verdict.max_speedup)} times as fast"
    end = limit if verdict.seconds is None else ""
    return (
        f"   {verdict.exchange or EXACT_TEXT:<17} {format_interval(verdict.seconds):<25} {sent:>11}"
        f"  {format_interval(verdict.examples_ratio):<22}  {verdict.verdict}{end}"
    )


def format_interval(estimate: IntervalEstimate | None) -> str:
    """Format a value with its interval; a dash where it is not known."""
    if estimate is None:
        return "-"
    return f"{format_number(estimate.value)} ({format_range(estimate.low, estimate.high)})"


def format_exchanges(section: StepTimeSection | None, is_requested: bool, names: Sequence[str] = ()) -> list[str]:
    """Format the fastest exchange at each rate and, where requested, the predictions and what they lack.

    Predictions with the ways of exchange of `names` are shown also where they were measured or are those of the plan.
    """
    if section is None:
        return []
    parts = split_section(section)
    fitted = {(part.device, part.exchange, part.bits_per_second) for part in parts}
    asked = {parse_exchange(name).name for name in names}
    gaps = [format_gap(gap, format_kind(part.device)) for part in parts for gap in part.missing]
    others = [
        row
        for row in section.predictions
        if row.exchange in asked or ((row.device, row.exchange, row.bits_per_second) not in fitted and not row.measured)
    ]
    fastest = section.fastest_exchanges[:MAX_PRINTED_EXCHANGES]
    lines = [f"{format_fastest(row)}{format_kind(section.device)}" for row in fastest]
    if is_requested:
        lines += map(format_prediction, others[:MAX_PRINTED_EXCHANGES])
        lines += gaps[:MAX_PRINTED_EXCHANGES]
        hidden = max(0, len(others) - MAX_PRINTED_EXCHANGES) + max(0, len(gaps) - MAX_PRINTED_EXCHANGES)
        lines += [f"and {hidden} more in plan.json"] if hidden else []
    return list(map(make_printable, lines))


def format_gap(gap: str, kind: str) -> str:
    """Format what is missing for a prediction that was asked for, or for predictions of other settings."""
    return f"left out{kind}: {gap}" if " needs " in gap else f"predictions of other settings{kind} need {gap}"


def format_fastest(fastest: FastestExchange) -> str:
    """Format the exchange with the shortest step at one rate and setting."""
    return (
        f"shortest step (whatever the examples){format_rate(fastest.bits_per_second)} of {fastest.compared} exchanges,"
        f" {fastest.workers} x {fastest.batch} on {pluralize(fastest.nodes, 'node')}: {fastest.exchange or EXACT_TEXT},"
        f" {format_number(1000 * fastest.seconds, 4)} ms"
    )


def format_prediction(row: StepTimePrediction) -> str:
    """Format the predicted step time with one exchange at one rate."""
    seconds, low, high = (1000 * (value or 0.0) for value in (row.seconds, row.low, row.high))
    return (
        f"{row.exchange or EXACT_TEXT}{format_rate(row.bits_per_second)}, {row.workers} x {row.batch} on"
        f" {pluralize(row.nodes, 'node')}{format_kind(row.device)}: a step takes {format_number(seconds, 4)} ms"
        f" ({format_range(low, high, 4)}){', measured' if row.measured else ''}"
    )


def format_rate(rate: float | None) -> str:
    """Format the rate of a link in Mbit/s; an empty text where it is unknown."""
    return "" if rate is None else f" at {format_number(rate / 1e6, 4)} Mbit/s"
