"""An index over many experiments: sortable, and two of them side by side."""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from dashboards.experiments import Experiment, Sweep
from dashboards.page import FactList, Link, Note, Page, Section, SectionPart, Table
from dashboards.panels.training_run import run_facts
from dashboards.plan_tables import candidate_plans
from dashboards.theme import format_interval
from equipoise.formatting import format_number
from equipoise.runs.record import Record

INDEX_TITLE = "Experiments"
INDEX_COLUMNS = (
    "experiment",
    "kind",
    "written",
    "workload",
    "workers",
    "batch",
    "lr",
    "outcome",
    "seconds",
    "examples",
)
MAX_CURVE_POINTS = 60  # of a curve, where two are compared


def build_index_page(
    experiments: Sequence[Experiment], root: Path, find_link: Callable[[Experiment], str | None]
) -> Page:
    """Of all that was found below a folder; `lead_to` says where the page of each is, if it has one."""
    if not experiments:
        words = f"There is nothing of ours below {root}: sweeps and runs leave their records in their --out."
        return Page(
            title=INDEX_TITLE, lead="", sections=[Section(title="Nothing yet", parts=[Note(name="none", text=words)])]
        )
    names = [experiment_name(one, root) for one in experiments]
    rows = []
    for one, label in zip(experiments, names, strict=True):
        to = find_link(one)
        rows.append([Link(label, quote(os.fsencode(to))) if to else label, *row_cells(one)])
    parts: list[SectionPart] = [FactList(name="counts", facts=count_by_kind(experiments))]
    parts += [Table(name="experiments", columns=INDEX_COLUMNS, rows=rows, row_labels=names)]
    wrong = [
        Note(name=f"wrong-{at}", text=f"{experiment_name(one, root)}: {one.problem}")
        for at, one in enumerate(experiments)
        if one.problem
    ]
    sections = [Section(title="All", parts=parts)]
    sections += [Section(title="Not whole", parts=wrong)] if wrong else []
    compared = {label: comparison_entry(one) for one, label in zip(experiments, names, strict=True)}
    return Page(
        title=INDEX_TITLE, lead=f"{len(experiments)} below {root}", sections=sections, comparison_entries=compared
    )


def page_link_finder(out: Path) -> Callable[[Experiment], str | None]:
    """Leads from a file to the page that lies beside an experiment."""
    return lambda one: os.path.relpath(one.page_path, out.parent) if one.page_path else None


def experiment_name(experiment: Experiment, root: Path) -> str:
    """Where it lies."""
    return experiment.path.relative_to(root).as_posix()


def count_by_kind(experiments: Sequence[Experiment]) -> dict[str, str]:
    """How many there are of each kind."""
    kinds = sorted({one.kind for one in experiments})
    return {f"{kind}s" if kind != "?" else kind: str(sum(one.kind == kind for one in experiments)) for kind in kinds}


def row_cells(experiment: Experiment) -> list[Any]:
    """A row, after the name."""
    came = (
        ["", None, None, None, experiment.problem[:60], None, None]
        if experiment.problem
        else outcome_cells(experiment.content)
    )
    return [experiment.kind, format_modified(experiment.modified), *came]


def format_modified(seconds: float) -> str:
    """When; nothing of a time that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return ""


def outcome_cells(content: Any) -> list[Any]:
    """Workload, workers, batch, learning rate, what came of it, seconds, examples to the target."""
    if isinstance(content, Record):
        trial = content.config
        return [
            trial.workload,
            trial.workers,
            trial.batch_size,
            trial.lr,
            content.status,
            content.seconds,
            content.examples_to_target,
        ]
    if isinstance(content, Sweep):
        workload, chosen = content.trial.get("workload", ""), content.plan["plan"]
        if not chosen:
            return [workload, None, None, None, "no plan", None, None]
        told = ["plan", chosen["seconds"]["value"], chosen.get("examples")]
        return [workload, chosen["workers"], chosen["batch"], chosen["lr"], *told]
    if "state" in content:
        said = content["state"] + (f": {content['cause']}" if content.get("cause") else "")
        return ["", None, None, None, said, None, content["images"]]
    accuracy = content["metrics"].get("accuracy") if isinstance(content["metrics"], Mapping) else None
    said = "published" if not isinstance(accuracy, float) else f"published, accuracy {accuracy:.4f}"
    return [content["name"], None, None, None, said, None, None]


def comparison_entry(experiment: Experiment) -> dict[str, Any]:
    """What is shown of it beside another."""
    if experiment.problem:
        return {"facts": {"kind": experiment.kind, "not whole": experiment.problem}}
    if isinstance(experiment.content, Record):
        return {"facts": run_facts(experiment.content), "curve": metric_curve(experiment.content)}
    if isinstance(experiment.content, Sweep):
        return {"facts": sweep_facts(experiment.content), "curve": time_to_target_curve(experiment.content)}
    texts = [format_number(value) if isinstance(value, float) else str(value) for value in row_cells(experiment)]
    return {"facts": {label: text for label, text in zip(INDEX_COLUMNS[1:], texts, strict=True) if text != "None"}}


def metric_curve(record: Record) -> dict[str, Any] | None:
    """The metric over examples seen."""
    laps = [lap for lap in record.laps if lap.metric is not None]
    if not laps:
        return None
    some = [laps[place] for place in np.unique(np.linspace(0, len(laps) - 1, MAX_CURVE_POINTS).astype(int))]
    points = {"x": [lap.seen for lap in some], "y": [round(lap.metric or 0.0, 5) for lap in some]}
    return points | {"across": "examples seen", "up": "metric, validation"}


def sweep_facts(sweep: Sweep) -> dict[str, str]:
    """The plan of a sweep."""
    chosen = sweep.plan["plan"]
    found = {"workload": str(sweep.trial.get("workload", "-")), "trials": str(sweep.num_trials)}
    if not chosen:
        return found | {"plan": "none"}
    return found | {
        "workers x batch": f"{chosen['workers']} x {chosen['batch']}",
        "learning rate": format_number(chosen["lr"]),
        "time to the target": format_interval(chosen["seconds"], "s"),
        "worker-seconds": format_number(chosen["worker_seconds"]),
        "bound by": chosen["binding"],
    }


def time_to_target_curve(sweep: Sweep) -> dict[str, Any] | None:
    """The least time to the target over the global batch."""
    plans = candidate_plans(sweep.plan)
    if plans.empty:
        return None
    least = plans.groupby("global_batch")["seconds"].min()
    points = {"x": [int(batch) for batch in least.index], "y": [float(value) for value in least]}
    return points | {"across": "global batch, examples", "up": "seconds to the target"}
