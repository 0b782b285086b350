"""Check of the rows of a CSV or parquet file."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
import pandas as pd

from dashboards.page import NumberCell, Page, Table, TableCell
from dashboards.reports import drift_page
from equipoise.bundle.engine_benchmark import compute_outputs
from equipoise.bundle.kinds.table_bundle import TableBundle
from equipoise.drift.diagnosis.dataset_verdict import compute_dataset_verdict
from equipoise.drift.diagnosis.verdict import DatasetVerdict
from equipoise.drift.features.table_stats import TableEncoder
from equipoise.drift.profiling.bundle_profile import collect_answered_rows, find_temperature, load_bundle_profile
from equipoise.drift.profiling.row_profile import AnsweredRows, build_kind_error, extract_row_features
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.errors import EquipoiseError
from equipoise.formatting import format_number
from equipoise.tables.watched_columns import read_watched_columns
from jobs.checking.checked_data import CheckedData
from jobs.checking.measured_label import measure_label_error
from jobs.checking.table_rows import TableRows, read_table_rows

MAX_COMPARED_ROWS = 20_000  # evenly spaced ones of a longer table: more take minutes and tell little more
MAX_SHOWN_COLUMNS = 6  # columns of the rows shown on the page


def check_table(model: TableBundle, path: Path) -> CheckedData:
    """Return the verdict on the rows of a table, with the numbers of those that changed most."""
    rows = read_table_rows(model, path, MAX_COMPARED_ROWS)
    outputs, features = compute_outputs(model.run_engine, rows.inputs)
    columns = read_watched_columns(model.spec, rows.values)
    answered = collect_answered_rows(columns, outputs, features, find_temperature(model))
    verdict = diagnose_rows(model, answered, rows.numbers)
    error = measure_label_error(model, rows, outputs)
    verdict = msgspec.structs.replace(verdict, measured=error, uncompared=rows.total - len(rows.numbers))
    return CheckedData(verdict, partial(build_table_page, rows))


def diagnose_rows(model: TableBundle, rows: AnsweredRows, row_numbers: Sequence[int]) -> DatasetVerdict:
    """Return the verdict on rows that the model has answered; unknown where the bundle has no reference for them."""
    try:
        profile = load_bundle_profile(model)
        return compare_with_reference(model, profile, rows, row_numbers)
    except EquipoiseError as error:
        if error.code != "reference-unusable":
            raise
        return DatasetVerdict(kind="table", state="unknown", why=str(error), images=len(row_numbers))


def compare_with_reference(
    model: TableBundle, profile: ReferenceProfile, rows: AnsweredRows, row_numbers: Sequence[int]
) -> DatasetVerdict:
    """Return the verdict on rows, given the profile of the reference."""
    if not isinstance(profile.encoder, TableEncoder) or rows.features is None:
        raise build_kind_error(profile, "rows of a table")
    arrays = model.load_reference_arrays()
    answers = arrays[model.manifest.outputs[0].name]
    return compute_dataset_verdict(
        profile,
        extract_row_features(profile, rows),
        rows.features,
        arrays[model.manifest.outputs[1].name],
        profile.encoder.classes(answers),
        [str(number) for number in row_numbers],
    )


def build_table_page(rows: TableRows, verdict: DatasetVerdict) -> Page:
    """Build the page of a verdict on a table, with the rows that changed most."""
    places = {str(number): place for place, number in enumerate(rows.numbers)}
    names = choose_shown_columns(rows, verdict)
    shown: list[list[TableCell]] = [
        [int(name), *(format_cell(rows.frame[column].iloc[places[name]]) for column in names)] for name in verdict.moved
    ]
    moved = Table(name="moved", columns=["row", *names], rows=shown) if shown else None
    return drift_page(verdict, [], [], moved_examples=moved)


def choose_shown_columns(rows: TableRows, verdict: DatasetVerdict) -> list[str]:
    """Return the columns shown of the rows that changed most: those of the causes first."""
    causes = [effect.cause for effect in verdict.effects]
    is_cause = {name: any(cause.endswith(f" {name}") for cause in causes) for name in rows.values}
    return sorted(rows.values, key=lambda name: not is_cause[name])[:MAX_SHOWN_COLUMNS]


def format_cell(value: object) -> TableCell:
    """Return a value as a cell of a page; a missing one as a dash."""
    if value is None or value != value or value is pd.NaT:
        return "-"
    return NumberCell(float(value), format_number(float(value))) if isinstance(value, float) else str(value)
