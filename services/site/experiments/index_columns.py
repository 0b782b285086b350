"""Columns of the table of experiments: what each holds, and how it is shown, sorted and filtered."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dashboards.page import format_cell
from dashboards.panels.experiment_index import format_modified
from dashboards.theme import format_seconds, format_significant
from equipoise.formatting import format_number

Value = str | int | float | None
CellFormatter = Callable[[Value], str]


def format_plain(value: Value) -> str:
    """Format a text or a whole number; an empty text becomes a dash."""
    return format_cell(None if value == "" else value)


def format_status(value: Value) -> str:
    """Format how an experiment ended."""
    return str(value or "-").replace("_", " ")


def format_optional(formatter: Callable[[float], str]) -> CellFormatter:
    """Return the formatter of a number that may be missing."""
    return lambda value: "-" if value is None else formatter(float(value))


@dataclass(frozen=True, kw_only=True)
class IndexColumn:
    """Column of the table of experiments."""

    name: str
    """its name in filters, in the CSV and in the API"""
    title: str
    sql_type: Literal["TEXT", "INTEGER", "REAL"]
    description: str
    format: CellFormatter = format_plain

    @property
    def is_number(self) -> bool:
        """Whether it holds numbers, which are compared as such."""
        return self.sql_type != "TEXT"


INDEX_COLUMNS = (
    IndexColumn(name="path", title="experiment", sql_type="TEXT", description="folder, or record of a trial"),
    IndexColumn(
        name="kind",
        title="kind",
        sql_type="TEXT",
        description="run, trial, sweep, plan, bundle, check, profile, comparison or ?",
    ),
    IndexColumn(name="status", title="outcome", sql_type="TEXT", description="how it ended", format=format_status),
    IndexColumn(
        name="modified",
        title="written, UTC",
        sql_type="REAL",
        description="last change, in seconds since 1970",
        format=format_optional(format_modified),
    ),
    IndexColumn(name="workload", title="workload", sql_type="TEXT", description="what was trained"),
    IndexColumn(name="model", title="model", sql_type="TEXT", description="model of the workload"),
    IndexColumn(name="optimizer", title="optimizer", sql_type="TEXT", description="optimizer"),
    IndexColumn(name="workers", title="workers", sql_type="INTEGER", description="workers on all nodes"),
    IndexColumn(name="batch_size", title="batch", sql_type="INTEGER", description="examples per worker and micro-step"),
    IndexColumn(name="grad_accumulation", title="micro-steps", sql_type="INTEGER", description="micro-steps of a step"),
    IndexColumn(name="global_batch", title="global batch", sql_type="INTEGER", description="examples per step"),
    IndexColumn(
        name="lr", title="lr", sql_type="REAL", description="learning rate", format=format_optional(format_number)
    ),
    IndexColumn(name="seed", title="seed", sql_type="INTEGER", description="seed of the run"),
    IndexColumn(
        name="target",
        title="target",
        sql_type="REAL",
        description="metric to reach",
        format=format_optional(format_number),
    ),
    IndexColumn(
        name="examples_to_target",
        title="examples to target",
        sql_type="REAL",
        description="examples until the target; predicted, for a sweep",
        format=format_optional(format_significant),
    ),
    IndexColumn(name="examples", title="examples seen", sql_type="INTEGER", description="examples seen in all"),
    IndexColumn(
        name="seconds",
        title="training time",
        sql_type="REAL",
        description="seconds of training; predicted to the target, for a sweep",
        format=format_optional(format_seconds),
    ),
    IndexColumn(
        name="test",
        title="test metric",
        sql_type="REAL",
        description="metric on the test split",
        format=format_optional(format_number),
    ),
)
COLUMN_BY_NAME = {column.name: column for column in INDEX_COLUMNS}
SHOWN_COLUMNS = (
    "path",
    "kind",
    "status",
    "modified",
    "workload",
    "workers",
    "batch_size",
    "lr",
    "seed",
    "examples_to_target",
    "seconds",
    "test",
)
"""columns of the table on the page; filters, the CSV and the API have all"""
