"""Rows of the index, read from the files of an experiment or the record of a trial."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dashboards.comparison_page import summarize_comparison
from dashboards.experiments import MEASUREMENT_READERS, READ_ERRORS, Experiment, Sweep, classify_folder
from dashboards.links_page import summarize_links
from dashboards.page import escape_surrogates
from dashboards.panels.experiment_index import describe_problem
from dashboards.profile_page import summarize_profile
from equipoise.bundle.manifest import Manifest, summarize_metrics
from equipoise.config import TrainConfig
from equipoise.drift.diagnosis.verdict import Verdict
from equipoise.planning.device_comparison.comparison_report import DeviceComparison
from equipoise.planning.exchanges.link_report import LinkReport
from equipoise.profiling.profile_report import ProfileReport
from equipoise.runs.listing import RECORD_COLUMNS, decode_listed_record, read_regular_file, record_to_table_row
from services.site.experiments.index_columns import INDEX_COLUMNS, Value

RECORD_FILE, TRIALS_FOLDER = "record.json", "trials"
UNREADABLE = "unreadable"
"""status of what cannot be read"""
MAX_INTEGER = 2**63 - 1  # that SQLite can hold
EXPERIMENT_FILES = ("plan.json", "verdict.json", "bundle.json", "trial.json", *MEASUREMENT_READERS)


@dataclass(frozen=True, kw_only=True)
class FileStamp:
    """Time of change and size of a file, by which a file that was read already is known."""

    mtime_ns: int
    size: int


@dataclass(frozen=True, kw_only=True)
class IndexRow:
    """Row of an experiment or record."""

    path: str
    stamp: FileStamp
    values: Mapping[str, Value] = field(default_factory=dict)
    problem: str = ""
    """why it cannot be read; empty if it can"""

    def as_tuple(self, folder: bytes) -> tuple[Value | bytes, ...]:
        """Return the values in the order of the table: those that identify the row, and the columns after the path."""
        texts = {name: escape_surrogates(value) for name, value in self.values.items() if isinstance(value, str)}
        numbers = {name: limit_integer(value) for name, value in self.values.items() if isinstance(value, int)}
        values = {**self.values, **texts, **numbers}
        stamp = (self.stamp.mtime_ns, self.stamp.size)
        columns = (values.get(column.name) for column in INDEX_COLUMNS if column.name != "path")
        return (escape_surrogates(self.path), folder, *stamp, escape_surrogates(self.problem), *columns)


def read_record_row(file: "os.DirEntry[str]", path: str, kind: str) -> IndexRow:
    """Read the row of a record; one that is damaged keeps its name and its problem."""
    stamp = stamp_entry(file)
    modified: dict[str, Value] = {"kind": kind, "modified": stamp.mtime_ns / 1e9}
    try:
        values = record_to_table_row(file.path, decode_listed_record(read_regular_file(file)))
    except (*READ_ERRORS, OSError) as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        return IndexRow(path=path, stamp=stamp, values=modified | {"status": UNREADABLE}, problem=reason)
    columns = {name: value for name, value in zip(RECORD_COLUMNS, values, strict=True) if name != "path"}
    return IndexRow(path=path, stamp=stamp, values=columns | modified)  # type: ignore[arg-type]


def read_experiment_row(folder: Path, path: str, names: set[str], stamp: FileStamp) -> IndexRow | None:
    """Read the row of an experiment other than a run that has a record; None if a folder holds none."""
    if not names.intersection(EXPERIMENT_FILES):
        return None
    experiment = classify_folder(folder, names)
    if experiment is None:
        return None
    values = describe_content(experiment) | {"kind": experiment.kind, "modified": experiment.modified}
    return IndexRow(path=path, stamp=stamp, values=values, problem=describe_problem(experiment))


def describe_content(experiment: Experiment) -> dict[str, Value]:
    """Return the values of an experiment that is not the record of a run."""
    content = experiment.content
    if experiment.problem:
        return {"status": "in progress" if experiment.problem.startswith("no record yet") else UNREADABLE}
    if isinstance(content, Sweep):
        return describe_sweep(content)
    if isinstance(content, Verdict):
        cause = f": {content.cause}" if content.cause else ""
        return {"status": f"{content.state}{cause}", "examples": content.images}
    if isinstance(content, Manifest):
        return {"status": f"published, {summarize_metrics(content.metrics)}", "workload": content.name}
    if isinstance(content, ProfileReport):
        config = content.config
        return describe_config(config) | {"workers": config.workers, "status": summarize_profile(content)}
    if isinstance(content, DeviceComparison):
        config = content.config
        return describe_config(config) | {"workers": content.workers, "status": summarize_comparison(content)}
    if isinstance(content, LinkReport):
        return {"workers": content.ranks, "status": summarize_links(content)}
    return {}


def describe_config(config: TrainConfig) -> dict[str, Value]:
    """Return the settings of steps that were measured."""
    return {
        "workload": config.name,
        "model": config.model,
        "optimizer": config.optimizer,
        "batch_size": config.batch_size,
        "grad_accumulation": config.grad_accumulation,
        "lr": config.lr,
        "seed": config.seed,
    }


def describe_sweep(sweep: Sweep) -> dict[str, Value]:
    """Return the values of a sweep or plan: those of its plan, as far as it has one."""
    plan = sweep.plan.plan
    if plan is None:
        return {"workload": sweep.trained_name, "status": "no plan yet"}
    return {
        "workload": sweep.trained_name,
        "status": f"plan, {sweep.plan.status}",
        "workers": plan.workers,
        "batch_size": plan.batch,
        "global_batch": plan.global_batch,
        "lr": plan.lr,
        "seconds": plan.seconds.value,
        "examples_to_target": plan.examples,
    }


def stamp_entry(entry: "os.DirEntry[str]") -> FileStamp:
    """Return the stamp of a file; zeros if it has gone meanwhile."""
    try:
        status = entry.stat()
    except OSError:
        return FileStamp(mtime_ns=0, size=0)
    return FileStamp(mtime_ns=limit_integer(status.st_mtime_ns), size=status.st_size)


def limit_integer(value: int) -> int:
    """Return a whole number, or the nearest one that a database can hold: times lie beyond from the year 2262 on."""
    return min(max(value, -MAX_INTEGER), MAX_INTEGER)


def join_stamps(stamps: Sequence[FileStamp]) -> FileStamp:
    """Return the stamp of several files as one: the time of the last change, and the size of all."""
    return FileStamp(
        mtime_ns=max((stamp.mtime_ns for stamp in stamps), default=0), size=sum(stamp.size for stamp in stamps)
    )
