"""The pages of runs, sweeps and checks, put together from panels."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dashboards.experiments import PAGES_BY_KIND, Experiment, Sweep
from dashboards.page import FactList, Link, Note, Page, Section, SectionPart, Table, TableCell, write_page
from dashboards.panels.drift import CaptionedImages, build_drift_sections
from dashboards.panels.scaling import build_scaling_panels, describe_bottleneck
from dashboards.panels.tradeoff import build_tradeoff_panels
from dashboards.panels.training_run import build_run_panels, run_facts
from dashboards.plan_tables import format_cluster_shape
from dashboards.theme import format_interval, format_seconds
from equipoise.formatting import format_number
from equipoise.runs.record import Record

PARAMETER_LABELS = {
    "a": "a step takes, whatever its batch",
    "c": "and for each example",
    "local_alpha": "a message within a node",
    "local_volume": "to send all gradients once within a node",
    "between_alpha": "a message between nodes",
    "between_volume": "to send all gradients once between nodes",
    "g": "overlap: 1 is none",
}
"""of the parameters that a step's time is fitted with"""


def run_page(record: Record) -> Page:
    """One run."""
    trial = record.config
    lead = f"Trained on {record.machine.get('device', 'a machine')}; seed {trial.seed}; target {record.target:g}."
    parts: list[SectionPart] = [FactList(name="facts", facts=run_facts(record))]
    if record.laps:
        parts += build_run_panels(record)
    else:
        parts.append(Note(name="nothing", text="It ended before its first lap: there is nothing to draw."))
    title = f"{trial.workload}: {trial.workers} x {trial.batch_size}, lr {trial.lr:g}"
    return Page(title=title, lead=lead, sections=[Section(title="Run", parts=parts)])


def tradeoff_page(sweep: Sweep, name: str) -> Page:
    """The trade-off of a sweep, and its plan."""
    facts = sweep.plan
    drawn = build_tradeoff_panels(facts, sweep.step_times, sweep.examples_to_target)
    sections = [
        Section(
            title="The plan", paragraphs=plan_paragraphs(facts), parts=[*warning_notes(facts), *plan_fact_lists(sweep)]
        )
    ]
    titles = {
        "curves": "System, statistics, and their product",
        "front": "Time against cost",
        "heat": "Workers and batch",
        "rates": "Learning rates",
    }
    sections += [Section(title=titles[panel.name], parts=[panel]) for panel in drawn]
    sections += (
        [Section(title="Trials so far", parts=[trials_table(sweep.unfinished_trials)])]
        if sweep.unfinished_trials
        else []
    )
    workload = sweep.trial.get("workload", "measurements")
    trials = f", from {sweep.num_trials} trials" if sweep.num_trials else ""
    links = [Link("how it scales", "scaling.html")]
    return Page(title=f"Curve: {name}", lead=f"The trade-off of {workload}{trials}.", sections=sections, links=links)


def trials_table(trials: Sequence[Record]) -> Table:
    """How each trial stands."""
    rows: list[list[TableCell]] = []
    for one in trials:
        metrics = [lap.metric for lap in one.laps if lap.metric is not None]
        seen = one.laps[-1].seen if one.laps else 0
        metric = metrics[-1] if metrics else None
        rows.append([one.config.global_batch, one.config.lr, one.config.seed, one.outcome, seen, metric])
    return Table(name="trials", columns=["global batch", "lr", "seed", "state", "examples", "metric"], rows=rows)


def scaling_page(sweep: Sweep, name: str) -> Page:
    """How a sweep's workload scales."""
    titles = {"speedup": "Speed-up", "parts": "Where the time goes"}
    drawn = [Section(title=titles[one.name], parts=[one]) for one in build_scaling_panels(sweep.plan, sweep.step_times)]
    words = describe_bottleneck(sweep.plan) or ["There is no plan yet: what binds cannot be told."]
    sections = [Section(title="What binds", paragraphs=words, parts=fit_fact_lists(sweep.plan)), *drawn]
    lead, links = "What more workers bring, and what it costs.", [Link("the trade-off", "curve.html")]
    return Page(title=f"Scaling: {name}", lead=lead, sections=sections, links=links)


def drift_page(
    verdict: Mapping[str, Any],
    drifted_images: CaptionedImages,
    reference_images: CaptionedImages,
    chart_history: Mapping[str, Any] | None = None,
    events: Sequence[Mapping[str, Any]] = (),
) -> Page:
    """The verdict on a folder of pictures, or on requests with what charts were like."""
    lead = f"{verdict.get('folder', 'pictures')} against {verdict.get('bundle', 'a bundle')}"
    title = f"Drift: {verdict.get('model', 'pictures')}, {verdict['state']}"
    return Page(
        title=title,
        lead=lead,
        sections=build_drift_sections(verdict, chart_history, events, drifted_images, reference_images),
    )


def plan_paragraphs(plan_json: Mapping[str, Any]) -> list[str]:
    """The plan, and what comes next."""
    chosen, second = plan_json["plan"], plan_json.get("runner_up")
    if not chosen:
        return ["There is no plan: what is missing is said below."]
    rate = "" if chosen["lr"] is None else f" at a learning rate of {chosen['lr']:.3g}"
    took = chosen["seconds"]
    words = [
        f"Train on {format_cluster_shape(chosen['nodes'], chosen['workers'])} "
        f"with {chosen['batch']} examples "
        f"each{rate}: about"
        f" {format_seconds(took['value'])} to the target ({format_seconds(took['low'])} "
        f"to {format_seconds(took['high'])},"
        f" four times of five), for {format_number(chosen['worker_seconds'])} worker-seconds.",
        f"Why: {chosen['why']}.",
    ]
    if second:
        where = format_cluster_shape(second["nodes"], second["workers"])
        words.append(f"Runner-up: {where} x {second['batch']}, {format_seconds(second['seconds']['value'])}.")
    return words


def warning_notes(plan_json: Mapping[str, Any]) -> list[SectionPart]:
    """What to beware of."""
    return [Note(name=f"note-{place}", text=words) for place, words in enumerate(plan_json.get("warnings", []))]


def plan_fact_lists(sweep: Sweep) -> list[SectionPart]:
    """Numbers of the fit, and how the confirming run went."""
    statistical = sweep.plan["statistical"] or {}
    found = {
        "critical batch": format_interval(statistical.get("critical_batch"), "examples"),
        "fewest examples": format_interval(statistical.get("min_examples")),
    }
    if sweep.confirmation:
        found |= confirmation_facts(sweep.confirmation)
    return [FactList(name="fit", facts=found)]


def fit_fact_lists(plan_json: Mapping[str, Any]) -> list[SectionPart]:
    """Parameters of a step's time."""
    system = plan_json["system"]
    if not system:
        return []
    found = {
        PARAMETER_LABELS.get(name, name): f"{value:.3g}" if name == "g" else format_seconds(value)
        for name, value in system["parameters"].items()
    }
    missing: list[SectionPart] = [
        Note(name=f"missing-{at}", text=f"To predict further, measure {one}.")
        for at, one in enumerate(system.get("missing", []))
    ]
    return [FactList(name="parameters", facts={**found, "mean error": f"{system['error']:.1%}"}), *missing]


def confirmation_facts(confirmation: Mapping[str, Any]) -> dict[str, str]:
    """How a plan kept its word."""
    foretold = confirmation["foretold"]
    took = "did not reach the target" if confirmation["seconds"] is None else format_seconds(confirmation["seconds"])
    return {
        "confirming run": took,
        "foretold": f"{format_seconds(foretold['low'])} to {format_seconds(foretold['high'])}",
    }


def build_page(experiment: Experiment, page_name: str) -> Page:
    """One of the pages that an experiment has."""
    if isinstance(experiment.content, Record):
        return run_page(experiment.content)
    if isinstance(experiment.content, Sweep):
        return {"curve": tradeoff_page, "scaling": scaling_page}[page_name](
            experiment.content, experiment.path.resolve().name
        )
    return drift_page(experiment.content, [], [])


def write_pages(experiment: Experiment) -> list[Path]:
    """Write an experiment's pages beside what it holds."""
    return [
        write_page(build_page(experiment, name), experiment.path / f"{name}.html")
        for name in PAGES_BY_KIND.get(experiment.kind, ())
    ]
