"""Index page of many experiments: a sortable table, with a comparison of two side by side."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dashboards.comparison_page import summarize_comparison
from dashboards.experiments import Experiment, Sweep
from dashboards.links_page import summarize_links
from dashboards.page import FactList, Link, Note, NumberCell, Page, Section, SectionPart, Table, TableCell, TimeCell
from dashboards.panels.training_run import run_facts
from dashboards.plan_tables import candidate_plans
from dashboards.profile_page import summarize_profile
from dashboards.theme import format_interval, format_seconds, format_significant
from equipoise.bundle.manifest import summarize_metrics
from equipoise.drift.diagnosis.verdict import Verdict
from equipoise.formatting import format_number, pluralize
from equipoise.planning.device_comparison.comparison_report import DeviceComparison
from equipoise.planning.exchanges.link_report import LinkReport
from equipoise.profiling.profile_report import ProfileReport
from equipoise.runs.record import Record
from equipoise.spacing import evenly_spaced_indices

INDEX_TITLE = "Experiments"
INDEX_COLUMNS = (
    "experiment",
    "kind",
    "written, UTC",
    "workload",
    "workers",
    "batch",
    "lr",
    "outcome",
    "training time",
    "examples",
)
MAX_CURVE_POINTS = 60  # of a curve in a comparison


def build_index_page(
    experiments: Sequence[Experiment], root: Path, find_link: Callable[[Experiment], str | None]
) -> Page:
    """Build the index page of experiments below a folder; `find_link` returns the URL of one's page, or None."""
    if not experiments:
        text = (
            f"There are no runs or sweeps below {root.absolute().name} yet. `equipoise train --workload digits --out"
            f" {root.absolute().name}/first` writes one; build this index again then."
        )
        empty = Section(title="No experiments yet", parts=[Note(name="none", text=text)])
        return Page(title=INDEX_TITLE, lead="", sections=[empty])
    names = [experiment_name(experiment, root) for experiment in experiments]
    rows = []
    for experiment, name in zip(experiments, names, strict=True):
        url = find_link(experiment)
        rows.append([Link(name, quote(os.fsencode(url))) if url else name, *row_cells(experiment)])
    parts: list[SectionPart] = [FactList(name="counts", facts=count_by_kind(experiments))]
    parts += [Table(name="experiments", columns=INDEX_COLUMNS, rows=rows, row_labels=names)]
    problems = [
        Note(name=f"wrong-{index}", text=f"{name}: {describe_problem(experiment)}")
        for index, (experiment, name) in enumerate(zip(experiments, names, strict=True))
        if experiment.problem
    ]
    sections = [Section(title="All experiments", parts=parts)]
    sections += [Section(title="Incomplete or unreadable", parts=problems)] if problems else []
    entries = {name: comparison_entry(experiment) for experiment, name in zip(experiments, names, strict=True)}
    lead = f"{pluralize(len(experiments), 'experiment')} below {root.absolute().name}."
    return Page(title=INDEX_TITLE, lead=lead, sections=sections, comparison_entries=entries)


def page_link_finder(out: Path) -> Callable[[Experiment], str | None]:
    """Return a function from an experiment to the path of its page relative to the index file, None without a page."""
    return lambda experiment: os.path.relpath(experiment.page_path, out.parent) if experiment.page_path else None


def experiment_name(experiment: Experiment, root: Path) -> str:
    """Return the path of an experiment below the root, as its name."""
    return experiment.path.relative_to(root).as_posix()


def count_by_kind(experiments: Sequence[Experiment]) -> dict[str, str]:
    """Return the number of experiments of each kind."""
    counts = Counter(experiment.kind for experiment in experiments)
    return {f"{kind}s" if kind != "?" else kind: str(count) for kind, count in sorted(counts.items())}


def row_cells(experiment: Experiment) -> list[Any]:
    """Return the cells of an experiment's row after its name."""
    outcome = (
        ["", None, None, None, describe_problem(experiment).partition(":")[0], None, None]
        if experiment.problem
        else outcome_cells(experiment.content)
    )
    return [experiment.kind, TimeCell(format_modified(experiment.modified)), *outcome]


def format_modified(seconds: float) -> str:
    """Format seconds since 1970 as date and time in UTC; an empty string if out of the calendar's range."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):  # datetime's, for a year or a number out of its range
        return ""


def outcome_cells(content: Any) -> list[Any]:
    """Return workload, workers, batch size, learning rate, outcome, seconds and examples to the target."""
    if isinstance(content, Record):
        config = content.config
        return [
            config.name,
            config.workers,
            config.batch_size,
            NumberCell(config.lr, format_number(config.lr)),
            content.status.replace("_", " "),
            NumberCell(content.seconds, format_seconds(content.seconds)) if content.seconds else None,
            round_examples(content.examples_to_target),
        ]
    if isinstance(content, Sweep):
        workload, plan = content.trained_name, content.plan.plan
        if not plan:
            return [workload, None, None, None, "no plan", None, None]
        outcome = f"plan, {content.plan.status}"
        lr = None if plan.lr is None else NumberCell(plan.lr, format_number(plan.lr))
        seconds = NumberCell(plan.seconds.value, f"{format_seconds(plan.seconds.value)}, predicted")
        return [workload, plan.workers, plan.batch, lr, outcome, seconds, round_examples(plan.examples)]
    if isinstance(content, Verdict):
        verdict = content.state + (f": {content.cause}" if content.cause else "")
        return ["", None, None, None, verdict, None, content.images]
    if isinstance(content, ProfileReport):
        return [*measurement_cells(content, content.config.workers), summarize_profile(content), None, None]
    if isinstance(content, DeviceComparison):
        return [*measurement_cells(content, content.workers), summarize_comparison(content), None, None]
    if isinstance(content, LinkReport):
        return ["", content.ranks, None, None, summarize_links(content), None, None]
    return [content.name, None, None, None, f"published, {summarize_metrics(content.metrics)}", None, None]


def measurement_cells(content: ProfileReport | DeviceComparison, workers: int) -> list[TableCell]:
    """Return workload, workers, batch size and learning rate of steps that were measured."""
    config = content.config
    return [config.name, workers, config.batch_size, NumberCell(config.lr, format_number(config.lr))]


def round_examples(examples: float | None) -> TableCell:
    """Return the cell of examples to the target, to three digits."""
    return None if examples is None else NumberCell(examples, format_significant(examples))


def describe_problem(experiment: Experiment) -> str:
    """Return the problem with an experiment without the path of its folder on this machine."""
    return experiment.problem.replace(f"{experiment.path}/", "")


def comparison_entry(experiment: Experiment) -> dict[str, Any]:
    """Return the facts, and perhaps a curve, that are shown of an experiment beside another."""
    if experiment.problem:
        return {"facts": {"kind": experiment.kind, "problem": describe_problem(experiment)}}
    if isinstance(experiment.content, Record):
        return {"facts": run_facts(experiment.content), "curve": metric_curve(experiment.content)}
    if isinstance(experiment.content, Sweep):
        return {"facts": sweep_facts(experiment.content), "curve": time_to_target_curve(experiment.content)}
    texts = [value.text if isinstance(value, NumberCell | TimeCell) else str(value) for value in row_cells(experiment)]
    return {"facts": {column: text for column, text in zip(INDEX_COLUMNS[1:], texts, strict=True) if text != "None"}}


def metric_curve(record: Record) -> dict[str, Any] | None:
    """Return the validation metric over examples seen, up to `MAX_CURVE_POINTS`; None without evaluations."""
    laps = [lap for lap in record.laps if lap.metric is not None]
    if not laps:
        return None
    sampled = [laps[index] for index in evenly_spaced_indices(len(laps), MAX_CURVE_POINTS)]
    points = {"x": [lap.seen for lap in sampled], "y": [float(f"{lap.metric:.5g}") for lap in sampled]}
    direction = " (lower is better)" if record.lower_is_better else ""
    return points | {"across": "examples seen", "up": f"{record.metric_name}, validation{direction}"}


def sweep_facts(sweep: Sweep) -> dict[str, str]:
    """Return the plan of a sweep in words."""
    plan = sweep.plan.plan
    facts = {"workload": sweep.trained_name or "-", "trials": str(sweep.num_trials)}
    if not plan:
        return facts | {"plan": "none"}
    return facts | {
        "plan": sweep.plan.status,
        **({"device": plan.device} if plan.device else {}),
        "workers x batch": f"{plan.workers} x {plan.batch}",
        "learning rate": format_number(plan.lr),
        "time to the target": format_interval(plan.seconds, "s"),
        "worker-seconds": format_number(plan.worker_seconds),
        "bound by": plan.binding,
    }


def time_to_target_curve(sweep: Sweep) -> dict[str, Any] | None:
    """Return the shortest predicted time to the target by global batch; None without plans."""
    plans = candidate_plans(sweep.plan)
    if plans.empty:
        return None
    shortest = plans.groupby("global_batch")["seconds"].min()
    points = {"x": [int(batch) for batch in shortest.index], "y": [float(value) for value in shortest]}
    return points | {"across": "global batch, examples", "up": "seconds to the target"}
