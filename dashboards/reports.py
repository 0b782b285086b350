"""The pages of runs, sweeps and checks, put together from panels."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dashboards import plan_tables as frames
from dashboards import theme as style
from dashboards.experiments import PAGES, Experiment, Sweep
from dashboards.page import Cell, Facts, Link, Note, Page, Part, Section, Table, written
from dashboards.panels import drift, scaling
from dashboards.panels import tradeoff as curve
from dashboards.panels import training_run as run
from equipoise.formatting import number
from equipoise.runs.record import Record

WORDS = {
    "a": "a step takes, whatever its batch",
    "c": "and for each example",
    "local_alpha": "a message within a node",
    "local_volume": "to send all gradients once within a node",
    "between_alpha": "a message between nodes",
    "between_volume": "to send all gradients once between nodes",
    "g": "overlap: 1 is none",
}
"""of the parameters that a step's time is fitted with"""


def of_run(record: Record) -> Page:
    """One run."""
    trial = record.trial
    lead = f"Trained on {record.machine.get('device', 'a machine')}; seed {trial.seed}; target {record.target:g}."
    parts: list[Part] = [Facts(name="facts", facts=run.facts(record))]
    if record.laps:
        parts += run.panels(record)
    else:
        parts.append(Note(name="nothing", words="It ended before its first lap: there is nothing to draw."))
    title = f"{trial.workload}: {trial.workers} x {trial.batch}, lr {trial.lr:g}"
    return Page(title=title, lead=lead, sections=[Section(title="Run", parts=parts)])


def of_curve(sweep: Sweep, name: str) -> Page:
    """The trade-off of a sweep, and its plan."""
    facts = sweep.plan
    drawn = curve.panels(facts, sweep.system, sweep.statistical)
    sections = [Section(title="The plan", words=in_words(facts), parts=[*notes(facts), *plan_facts(sweep)])]
    titles = {
        "curves": "System, statistics, and their product",
        "front": "Time against cost",
        "heat": "Workers and batch",
        "rates": "Learning rates",
    }
    sections += [Section(title=titles[panel.name], parts=[panel]) for panel in drawn]
    sections += [Section(title="Trials so far", parts=[under_way(sweep.under_way)])] if sweep.under_way else []
    workload = sweep.trial.get("workload", "measurements")
    trials = f", from {sweep.trials} trials" if sweep.trials else ""
    links = [Link("how it scales", "scaling.html")]
    return Page(title=f"Curve: {name}", lead=f"The trade-off of {workload}{trials}.", sections=sections, links=links)


def under_way(trials: Sequence[Record]) -> Table:
    """How each trial stands."""
    rows: list[list[Cell]] = []
    for one in trials:
        metrics = [lap.metric for lap in one.laps if lap.metric is not None]
        seen = one.laps[-1].seen if one.laps else 0
        metric = metrics[-1] if metrics else None
        rows.append([one.trial.global_batch, one.trial.lr, one.trial.seed, one.ended, seen, metric])
    return Table(name="trials", columns=["global batch", "lr", "seed", "state", "examples", "metric"], rows=rows)


def of_scaling(sweep: Sweep, name: str) -> Page:
    """How a sweep's workload scales."""
    titles = {"speedup": "Speed-up", "parts": "Where the time goes"}
    drawn = [Section(title=titles[one.name], parts=[one]) for one in scaling.panels(sweep.plan, sweep.system)]
    words = scaling.binds(sweep.plan) or ["There is no plan yet: what binds cannot be told."]
    sections = [Section(title="What binds", words=words, parts=fitted(sweep.plan)), *drawn]
    lead, links = "What more workers bring, and what it costs.", [Link("the trade-off", "curve.html")]
    return Page(title=f"Scaling: {name}", lead=lead, sections=sections, links=links)


def of_check(
    verdict: Mapping[str, Any],
    moved: drift.Shown,
    usual: drift.Shown,
    trace: Mapping[str, Any] | None = None,
    events: Sequence[Mapping[str, Any]] = (),
) -> Page:
    """The verdict on a folder of pictures, or on requests with what charts were like."""
    lead = f"{verdict.get('folder', 'pictures')} against {verdict.get('bundle', 'a bundle')}"
    title = f"Drift: {verdict.get('model', 'pictures')}, {verdict['state']}"
    return Page(title=title, lead=lead, sections=drift.sections(verdict, trace, events, moved, usual))


def in_words(facts: Mapping[str, Any]) -> list[str]:
    """The plan, and what comes next."""
    chosen, second = facts["plan"], facts.get("runner_up")
    if not chosen:
        return ["There is no plan: what is missing is said below."]
    rate = "" if chosen["lr"] is None else f" at a learning rate of {chosen['lr']:.3g}"
    took = chosen["seconds"]
    words = [
        f"Train on {frames.place(chosen['nodes'], chosen['workers'])} with {chosen['batch']} examples each{rate}: about"
        f" {style.seconds(took['value'])} to the target ({style.seconds(took['low'])} to {style.seconds(took['high'])},"
        f" four times of five), for {number(chosen['worker_seconds'])} worker-seconds.",
        f"Why: {chosen['why']}.",
    ]
    if second:
        where = frames.place(second["nodes"], second["workers"])
        words.append(f"Runner-up: {where} x {second['batch']}, {style.seconds(second['seconds']['value'])}.")
    return words


def notes(facts: Mapping[str, Any]) -> list[Part]:
    """What to beware of."""
    return [Note(name=f"note-{place}", words=words) for place, words in enumerate(facts.get("warnings", []))]


def plan_facts(sweep: Sweep) -> list[Part]:
    """Numbers of the fit, and how the confirming run went."""
    statistical = sweep.plan["statistical"] or {}
    found = {
        "critical batch": style.spread(statistical.get("critical_batch"), "examples"),
        "fewest examples": style.spread(statistical.get("min_examples")),
    }
    if sweep.confirm:
        found |= kept(sweep.confirm)
    return [Facts(name="fit", facts=found)]


def fitted(facts: Mapping[str, Any]) -> list[Part]:
    """Parameters of a step's time."""
    system = facts["system"]
    if not system:
        return []
    found = {
        WORDS.get(name, name): f"{value:.3g}" if name == "g" else style.seconds(value)
        for name, value in system["parameters"].items()
    }
    missing: list[Part] = [
        Note(name=f"missing-{at}", words=f"To predict further, measure {one}.")
        for at, one in enumerate(system.get("missing", []))
    ]
    return [Facts(name="parameters", facts={**found, "mean error": f"{system['error']:.1%}"}), *missing]


def kept(confirm: Mapping[str, Any]) -> dict[str, str]:
    """How a plan kept its word."""
    foretold = confirm["foretold"]
    took = "did not reach the target" if confirm["seconds"] is None else style.seconds(confirm["seconds"])
    return {
        "confirming run": took,
        "foretold": f"{style.seconds(foretold['low'])} to {style.seconds(foretold['high'])}",
    }


def of(one: Experiment, name: str) -> Page:
    """One of the pages that an experiment has."""
    if isinstance(one.found, Record):
        return of_run(one.found)
    if isinstance(one.found, Sweep):
        return {"curve": of_curve, "scaling": of_scaling}[name](one.found, one.path.resolve().name)
    return of_check(one.found, [], [])


def left(one: Experiment) -> list[Path]:
    """Write an experiment's pages beside what it holds."""
    return [written(of(one, name), one.path / f"{name}.html") for name in PAGES.get(one.kind, ())]
