"""An index over many experiments: sortable, and two of them side by side."""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from dashboards import plan_tables as frames
from dashboards import theme as style
from dashboards.experiments import Experiment, Sweep
from dashboards.page import Facts, Link, Note, Page, Part, Section, Table
from dashboards.panels import training_run as run
from equipoise.formatting import number
from equipoise.runs.record import Record

TITLE = "Experiments"
COLUMNS = ("experiment", "kind", "written", "workload", "workers", "batch", "lr", "outcome", "seconds", "examples")
POINTS = 60  # of a curve, where two are compared


def page(found: Sequence[Experiment], root: Path, lead_to: Callable[[Experiment], str | None]) -> Page:
    """Of all that was found below a folder; `lead_to` says where the page of each is, if it has one."""
    if not found:
        words = f"There is nothing of ours below {root}: sweeps and runs leave their records in their --out."
        return Page(
            title=TITLE, lead="", sections=[Section(title="Nothing yet", parts=[Note(name="none", words=words)])]
        )
    names = [name(one, root) for one in found]
    rows = []
    for one, label in zip(found, names, strict=True):
        to = lead_to(one)
        rows.append([Link(label, quote(os.fsencode(to))) if to else label, *cells(one)])
    parts: list[Part] = [Facts(name="counts", facts=counts(found))]
    parts += [Table(name="experiments", columns=COLUMNS, rows=rows, picks=names)]
    wrong = [Note(name=f"wrong-{at}", words=f"{name(one, root)}: {one.why}") for at, one in enumerate(found) if one.why]
    sections = [Section(title="All", parts=parts)]
    sections += [Section(title="Not whole", parts=wrong)] if wrong else []
    compared = {label: side(one) for one, label in zip(found, names, strict=True)}
    return Page(title=TITLE, lead=f"{len(found)} below {root}", sections=sections, compared=compared)


def beside(out: Path) -> Callable[[Experiment], str | None]:
    """Leads from a file to the page that lies beside an experiment."""
    return lambda one: os.path.relpath(one.page, out.parent) if one.page else None


def name(one: Experiment, root: Path) -> str:
    """Where it lies."""
    return one.path.relative_to(root).as_posix()


def counts(found: Sequence[Experiment]) -> dict[str, str]:
    """How many there are of each kind."""
    kinds = sorted({one.kind for one in found})
    return {f"{kind}s" if kind != "?" else kind: str(sum(one.kind == kind for one in found)) for kind in kinds}


def cells(one: Experiment) -> list[Any]:
    """A row, after the name."""
    came = ["", None, None, None, one.why[:60], None, None] if one.why else outcome(one.found)
    return [one.kind, written(one.changed), *came]


def written(seconds: float) -> str:
    """When; nothing of a time that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return ""


def outcome(found: Any) -> list[Any]:
    """Workload, workers, batch, learning rate, what came of it, seconds, examples to the target."""
    if isinstance(found, Record):
        trial = found.trial
        return [
            trial.workload,
            trial.workers,
            trial.batch,
            trial.lr,
            found.ended,
            found.seconds,
            found.examples_to_target,
        ]
    if isinstance(found, Sweep):
        workload, chosen = found.trial.get("workload", ""), found.plan["plan"]
        if not chosen:
            return [workload, None, None, None, "no plan", None, None]
        told = ["plan", chosen["seconds"]["value"], chosen.get("examples")]
        return [workload, chosen["workers"], chosen["batch"], chosen["lr"], *told]
    if "state" in found:
        said = found["state"] + (f": {found['cause']}" if found.get("cause") else "")
        return ["", None, None, None, said, None, found["images"]]
    accuracy = found["metrics"].get("accuracy") if isinstance(found["metrics"], Mapping) else None
    said = "published" if not isinstance(accuracy, float) else f"published, accuracy {accuracy:.4f}"
    return [found["name"], None, None, None, said, None, None]


def side(one: Experiment) -> dict[str, Any]:
    """What is shown of it beside another."""
    if one.why:
        return {"facts": {"kind": one.kind, "not whole": one.why}}
    if isinstance(one.found, Record):
        return {"facts": run.facts(one.found), "curve": learned(one.found)}
    if isinstance(one.found, Sweep):
        return {"facts": planned(one.found), "curve": balanced(one.found)}
    texts = [number(value) if isinstance(value, float) else str(value) for value in cells(one)]
    return {"facts": {label: text for label, text in zip(COLUMNS[1:], texts, strict=True) if text != "None"}}


def learned(record: Record) -> dict[str, Any] | None:
    """The metric over examples seen."""
    laps = [lap for lap in record.laps if lap.metric is not None]
    if not laps:
        return None
    some = [laps[place] for place in np.unique(np.linspace(0, len(laps) - 1, POINTS).astype(int))]
    points = {"x": [lap.seen for lap in some], "y": [round(lap.metric or 0.0, 5) for lap in some]}
    return points | {"across": "examples seen", "up": "metric, validation"}


def planned(sweep: Sweep) -> dict[str, str]:
    """The plan of a sweep."""
    chosen = sweep.plan["plan"]
    found = {"workload": str(sweep.trial.get("workload", "-")), "trials": str(sweep.trials)}
    if not chosen:
        return found | {"plan": "none"}
    return found | {
        "workers x batch": f"{chosen['workers']} x {chosen['batch']}",
        "learning rate": number(chosen["lr"]),
        "time to the target": style.spread(chosen["seconds"], "s"),
        "worker-seconds": number(chosen["worker_seconds"]),
        "bound by": chosen["binding"],
    }


def balanced(sweep: Sweep) -> dict[str, Any] | None:
    """The least time to the target over the global batch."""
    plans = frames.options(sweep.plan)
    if plans.empty:
        return None
    least = plans.groupby("global_batch")["seconds"].min()
    points = {"x": [int(batch) for batch in least.index], "y": [float(value) for value in least]}
    return points | {"across": "global batch, examples", "up": "seconds to the target"}
