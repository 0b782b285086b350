"""Pages of runs, sweeps, drift checks and measurements, composed of panels."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dashboards.comparison_page import build_comparison_page
from dashboards.experiments import PROFILE_PAGE, READ_ERRORS, Experiment, Sweep, read_profile
from dashboards.links_page import build_links_page
from dashboards.page import (
    FactList,
    Link,
    Note,
    NumberCell,
    Page,
    Section,
    SectionPart,
    Table,
    TableCell,
    write_page,
)
from dashboards.panels.drift import CaptionedImages, build_drift_sections
from dashboards.panels.exchanges.exchange_section import build_exchange_section
from dashboards.panels.experiments.search_section import build_search_section
from dashboards.panels.recipes.recipe_section import build_recipe_section
from dashboards.panels.scaling import build_scaling_panels, describe_bottleneck
from dashboards.panels.sharding.pipeline_timeline import build_timeline_panels
from dashboards.panels.sharding.worker_memory import build_memory_panel
from dashboards.panels.tradeoff import build_tradeoff_panels
from dashboards.panels.training_run import build_class_sections, build_run_panels, describe_result, run_facts
from dashboards.plan_confirmation import confirmation_tables, describe_plan_status
from dashboards.plan_tables import format_cluster_shape
from dashboards.profile_page import build_profile_page
from dashboards.theme import (
    count_justified_digits,
    format_examples_interval,
    format_seconds,
    format_significant,
    format_time_interval,
)
from equipoise.drift.diagnosis.verdict import ChartHistory, DatasetVerdict, Verdict
from equipoise.drift.monitor.entries import DriftEvent
from equipoise.formatting import capitalize_first, format_joules, pluralize
from equipoise.hardware_facts import HardwareFacts
from equipoise.planning.device_comparison.comparison_report import DeviceComparison
from equipoise.planning.document import PlanDocument
from equipoise.planning.exchanges.link_report import LinkReport
from equipoise.profiling.profile_report import PROFILE_FILE, ProfileReport
from equipoise.runs.misclassified import MisclassifiedImage, read_misclassified
from equipoise.runs.record import Record
from equipoise.runs.target import UNNAMED_METRIC

PARAMETER_LABELS = {
    "a": "fixed time of a step",
    "c": "additional time per example",
    "local_alpha": "latency of a message within a node",
    "local_volume": "time to send all gradients once within a node",
    "between_alpha": "latency of a message between nodes",
    "between_volume": "time to send all gradients once between nodes",
    "g": "overlap exponent (1: no overlap)",
}
"""labels of the fitted parameters of a step's time"""
NO_LAPS = (
    "The run ended before its first lap: there is nothing to draw. Its status says why; the same command with the same"
    " --out starts it again."
)
DRIFT_TITLES = {"ok": "no drift", "drift": "drift", "unknown": "unknown whether there is drift"}


def run_page(record: Record, misclassified: Sequence[MisclassifiedImage] = (), *, has_profile: bool = False) -> Page:
    """Build the page of one training run, with test images that its model classifies wrongly."""
    config = record.config
    lead = f"Trained on {name_processor(record.machine)}; seed {config.seed}; target {record.goal.describe()}."
    parts: list[SectionPart] = [FactList(name="facts", facts=run_facts(record))]
    if record.laps:
        parts += [*build_run_panels(record), *build_timeline_panels(record)]
    else:
        parts.append(Note(name="nothing", text=NO_LAPS))
    title = f"{config.name}: {config.workers} x {config.batch_size}, lr {config.lr:g}"
    run_section = Section(title="Run", paragraphs=[describe_result(record)], parts=parts)
    sections = [run_section, *build_class_sections(record, misclassified)]
    links = [Link("where the time of a step goes", f"{PROFILE_PAGE}.html")] if has_profile else []
    return Page(title=title, lead=lead, sections=sections, links=links)


def name_processor(machine: HardwareFacts) -> str:
    """Return the most precise name that is known of what a run was trained on."""
    return machine.gpu or machine.processor or machine.device or "a machine"


def tradeoff_page(sweep: Sweep, name: str) -> Page:
    """Build the page of a sweep's trade-off and plan."""
    plan = sweep.plan
    panels = build_tradeoff_panels(plan, sweep.step_times, sweep.examples_to_target)
    sections = [
        Section(
            title="The plan",
            paragraphs=plan_paragraphs(plan),
            parts=[*confirmation_tables(plan), *warning_notes(plan), *plan_fact_lists(plan)],
        )
    ]
    if sweep.search:
        search = build_search_section(sweep.search, sweep.unfinished_trials, sweep.is_finished)
        sections.insert(len(sections) if sweep.is_finished else 0, search)
    if section := build_exchange_section(plan):
        sections.append(section)
    if sweep.recipes:
        sections.append(build_recipe_section(sweep.recipes))
    titles = {
        "curves": "Time per example, examples to the target, and their product",
        "targets": "Critical batch over the target",
        "front": "Time against cost",
        "energy": "Time against energy",
        "heat": "Workers and batch size",
        "rates": "Learning rates",
    }
    sections += [Section(title=titles[panel.name], parts=[panel]) for panel in panels]
    if sweep.memory:
        sections.append(Section(title="Memory of a worker", parts=[build_memory_panel(sweep.memory)]))
    sections += (
        [Section(title="Trials so far", parts=[trials_table(sweep.unfinished_trials)])]
        if sweep.unfinished_trials
        else []
    )
    workload = sweep.trained_name or "measurements"
    setup = plan.setup
    target = f", with a target of {setup.goal.describe()}" if setup and setup.target is not None else ""
    trials = f", from {pluralize(sweep.num_trials, 'trial')}" if sweep.num_trials else ""
    links = [Link("how it scales", "scaling.html")]
    return Page(
        title=f"Trade-off: {name}",
        lead=f"Trade-off between speed and cost of {workload}{target}{trials}.",
        sections=sections,
        links=links,
    )


def trials_table(trials: Sequence[Record]) -> Table:
    """Return the table of trials with their status, examples seen and latest metric, best first."""
    rows: list[list[TableCell]] = []
    for trial in sorted(trials, key=lambda trial: (trial.examples_to_target or math.inf, trial.config.global_batch)):
        config = trial.config
        metrics = [lap.metric for lap in trial.laps if lap.metric is not None]
        seen = trial.laps[-1].seen if trial.laps else 0
        metric = metrics[-1] if metrics else None
        lr = NumberCell(config.lr, format_significant(config.lr))
        rows.append([config.global_batch, lr, str(config.seed), trial.outcome, seen, metric])
    metric_name = trials[0].metric_name if trials else UNNAMED_METRIC
    return Table(name="trials", columns=["global batch", "lr", "seed", "status", "examples", metric_name], rows=rows)


def scaling_page(sweep: Sweep, name: str) -> Page:
    """Build the page of how a sweep's workload scales over workers."""
    titles = {"speedup": "Speed-up", "parts": "Time of a step"}
    panels = build_scaling_panels(sweep.plan, sweep.step_times)
    bottleneck = describe_bottleneck(sweep.plan) or ["There is no plan yet, so the bottleneck is unknown."]
    sections = [Section(title="Bottleneck", paragraphs=bottleneck, parts=fit_fact_lists(sweep.plan))]
    sections += [Section(title=titles[panel.name], parts=[panel]) for panel in panels]
    lead, links = "Speed-up by more workers, and the time of a step.", [Link("the trade-off", "curve.html")]
    return Page(title=f"Scaling: {name}", lead=lead, sections=sections, links=links)


def drift_page(
    verdict: Verdict,
    drifted_images: CaptionedImages,
    reference_images: CaptionedImages,
    chart_history: ChartHistory | None = None,
    events: Sequence[DriftEvent] = (),
    moved_examples: Table | None = None,
) -> Page:
    """Build the page of a verdict on images, rows or texts, or on requests with the history of their charts."""
    names = (verdict.folder, verdict.bundle) if isinstance(verdict, DatasetVerdict) else ("Requests", verdict.model)
    examples = capitalize_first(verdict.example_name)
    compared, bundle = (Path(name).name if name else None for name in names)  # a page shows no path of a machine
    lead = f"{compared or examples} compared with the reference of {bundle or 'a bundle'}."
    title = f"{verdict.model or examples}: {DRIFT_TITLES[verdict.state]}"
    return Page(
        title=title,
        lead=lead,
        sections=build_drift_sections(
            verdict, chart_history, events, drifted_images, reference_images, moved_examples=moved_examples
        ),
    )


def plan_paragraphs(document: PlanDocument) -> list[str]:
    """Return the plan, its reason and the runner-up in words."""
    plan, runner_up = document.plan, document.runner_up
    if not plan:
        return ["There is no plan: the notes below say what is missing."]
    rate = "" if plan.lr is None else f" at a learning rate of {plan.lr:.3g}"
    exchange = f", exchanging as `{plan.exchange}`" if plan.exchange else ""
    exchange += "" if plan.momentum is None else f" with a momentum of {plan.momentum:g}"
    shape, seconds = format_cluster_shape(plan.nodes, plan.workers), plan.seconds
    device = f" of `{plan.device}`" if plan.device else ""
    dollars = "" if plan.dollars is None else f", or {format_significant(plan.dollars)} dollars"
    joules = "" if plan.joules is None else f" and {format_joules(plan.joules)}"
    paragraphs = [
        describe_plan_status(document),
        f"Train on {shape}{device} with {plan.batch} examples each{rate}{exchange}"
        f": predicted {format_time_interval(seconds)} to the target, at a cost of"
        f" {format_significant(plan.worker_seconds, count_justified_digits(seconds))} worker-seconds"
        f"{dollars}{joules}. In brackets is the 80 % interval.",
        f"Reason: {plan.why}.",
    ]
    if document.system and (verdicts := [fit.verdict for fit in document.system.devices if fit.verdict]):
        paragraphs.append(f"Devices: {'; '.join(verdicts)}.")
    if runner_up:
        shape = format_cluster_shape(runner_up.nodes, runner_up.workers)
        predicted = f"predicted {format_time_interval(runner_up.seconds)} to the target"
        paragraphs.append(f"Runner-up: {shape} with {runner_up.batch} examples each, {predicted}.")
    return paragraphs


def warning_notes(document: PlanDocument) -> list[SectionPart]:
    """Return the warnings of a plan as notes."""
    return [Note(name=f"note-{index}", text=capitalize_first(text)) for index, text in enumerate(document.warnings)]


def plan_fact_lists(document: PlanDocument) -> list[SectionPart]:
    """Return the fitted critical batch and the fewest examples, if they were fitted."""
    fit = document.statistical
    if fit is None:
        return []
    facts = {
        "critical batch": format_examples_interval(fit.critical_batch, *document.unit),
        "fewest examples to the target": format_examples_interval(fit.min_examples, *document.unit),
    }
    return [FactList(name="fit", facts=facts)]


def fit_fact_lists(document: PlanDocument) -> list[SectionPart]:
    """Return the fitted parameters of a step's time, and what to measure for further predictions."""
    system = document.system
    if not system:
        return []
    facts = {
        PARAMETER_LABELS.get(name, name): f"{value:.3g}" if name == "g" else format_seconds(value)
        for name, value in system.parameters.items()
    }
    missing: list[SectionPart] = [
        Note(name=f"missing-{index}", text=f"To predict further, measure {measurement}.")
        for index, measurement in enumerate(system.missing)
    ]
    return [FactList(name="parameters", facts={**facts, "mean error of the fit": format_error(system.error)}), *missing]


def format_error(share: float) -> str:
    """Format the mean error of a fit as a percentage without decimals."""
    return "below 1%" if share < 0.01 else f"{share:.0%}"


def build_page(experiment: Experiment, page_name: str) -> Page:
    """Build one of the pages of an experiment, by its name in `Experiment.list_pages`."""
    content = experiment.content
    if isinstance(content, Record):
        if page_name == PROFILE_PAGE:
            profile = read_profile(experiment.path / PROFILE_FILE)
            return replace(build_profile_page(profile), links=[Link("the run", "run.html")])
        return run_page(content, read_misclassified(experiment.path), has_profile=has_readable_profile(experiment))
    if isinstance(content, Sweep):
        return {"curve": tradeoff_page, "scaling": scaling_page}[page_name](content, experiment.path.resolve().name)
    if isinstance(content, ProfileReport):
        return build_profile_page(content)
    if isinstance(content, DeviceComparison):
        return build_comparison_page(content)
    if isinstance(content, LinkReport):
        return build_links_page(content)
    return drift_page(content, [], [])


def write_pages(experiment: Experiment, index: Path | None = None) -> list[Path]:
    """Write an experiment's pages into its folder, with links to an index, and return their paths."""
    names = experiment.list_pages()
    if experiment.kind == "run" and not has_readable_profile(experiment):
        names = [name for name in names if name != PROFILE_PAGE]
    return [write_page(build_page(experiment, name), experiment.path / f"{name}.html", index) for name in names]


def has_readable_profile(experiment: Experiment) -> bool:
    """Return whether the steps of an observed run were profiled, and the file can be read."""
    with suppress(OSError, *READ_ERRORS):
        read_profile(experiment.path / PROFILE_FILE)
        return True
    return False
