"""The workload of a table: its rows in four splits, and how they are encoded, learned and scored."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from equipoise.config import TrainConfig
from equipoise.storage.object_store import parse_location
from equipoise.tables.columns import ColumnKind, ColumnValues
from equipoise.tables.labels import TableLabel
from equipoise.tables.spec import TableInputs, TableSpec
from equipoise.tables.watched_columns import read_watched_columns
from equipoise.type_aliases import AnyArray
from equipoise.workloads.base import select_split, stratified_split
from equipoise.workloads.batch import Batch
from equipoise.workloads.image_folder import folder_name
from equipoise.workloads.image_workload import top1_correct
from equipoise.workloads.table.column_fit import fit_columns
from equipoise.workloads.table.label_fit import fit_label, read_label, require_label
from equipoise.workloads.table.models import table_model_factory
from equipoise.workloads.table.regression import r2_score, residuals_and_targets, squared_error
from equipoise.workloads.table.series_values import read_series
from equipoise.workloads.table.table_files import TableData, read_table
from equipoise.workloads.table.workload import TableWorkload

SPLIT_NAMES = ("train", "validation", "reference", "test")
SPLIT_FRACTIONS = (0.15, 0.1, 0.15)  # validation, reference and test; the rest is for training
TABLE_SUFFIX = re.compile(r"\.(csv|csv\.gz|parquet)$", re.IGNORECASE)
TABLE_DEFAULTS = {"optimizer": "adamw", "lr": 1e-3, "weight_decay": 1e-2}

logger = logging.getLogger(__name__)  # commands configure no handler: Python then prints warnings to stderr as they are


@dataclass(frozen=True, eq=False)
class LabelledTable:
    """Table with its label, dealt to the splits."""

    data: TableData
    label: TableLabel
    labels: AnyArray
    """(rows,) numbers, or indices of classes"""
    values: Mapping[str, tuple[ColumnKind, ColumnValues]]
    """kind and values of every other column"""
    splits: Mapping[str, NDArray[np.int64]]
    """rows of each split"""


def build_table_workload(config: TrainConfig) -> TableWorkload:
    """Build the workload of the table in --data, whose column --label is predicted from all others."""
    table = read_labelled_table(config)
    label, labels, is_classification = table.label, table.labels, table.label.kind == "class"
    columns, ignored = fit_columns(table.data, table.values, table.splits["train"])
    if not is_classification:
        label = fit_label(label, labels[table.splits["train"]])
        labels = label.encode_values(labels)
    for name, reason in ignored.items():
        logger.warning("ignored column %r: %s", name, reason)
    spec = TableSpec(columns=columns, label=label, ignored=ignored)
    inputs = inputs_to_tensors(spec.encode_columns({name: column for name, (_, column) in table.values.items()}))
    splits = {name: select_split(inputs, torch.from_numpy(labels), rows) for name, rows in table.splits.items()}
    return TableWorkload(
        name=table_name(config.data),
        train=splits["train"],
        validation=splits["validation"],
        reference=splits["reference"],
        test=splits["test"],
        model=table_model_factory(config.model, spec),
        target=None,
        loss=F.cross_entropy if is_classification else squared_error,
        metric=top1_correct if is_classification else residuals_and_targets,
        score=None if is_classification else r2_score,
        defaults=TABLE_DEFAULTS,
        classes=label.classes,
        spec=spec,
        read_columns=partial(read_held_out_columns, config, spec),
    )


def read_labelled_table(config: TrainConfig) -> LabelledTable:
    """Read the table in --data and its column --label, and deal the rows to the splits, each class in proportion."""
    data = read_table(config.data)
    label_name = require_label(data, config.label)
    values = {str(name): read_series(data.frame[name]) for name in data.frame.columns}
    label, labels = read_label(data, label_name, *values.pop(label_name))
    groups = labels if label.kind == "class" else np.zeros(len(labels), np.int64)
    splits = dict(zip(SPLIT_NAMES, stratified_split(groups, SPLIT_FRACTIONS), strict=True))
    return LabelledTable(data, label, labels, values, splits)


def read_held_out_columns(config: TrainConfig, spec: TableSpec) -> dict[str, dict[str, AnyArray]]:
    """Read the columns of the splits `validation` and `reference`, by split, as drift detection compares them."""
    table = read_labelled_table(config)
    columns = read_watched_columns(spec, {name: values for name, (_, values) in table.values.items()})
    return {
        split: {name: column[table.splits[split]] for name, column in columns.items()}
        for split in ("validation", "reference")
    }


def inputs_to_tensors(inputs: TableInputs) -> Batch:
    """Return the arrays of a table's inputs as tensors."""
    return tuple(map(torch.from_numpy, inputs)) if isinstance(inputs, tuple) else torch.from_numpy(inputs)


def table_name(location: str) -> str:
    """Return the name of a file without its suffix, or of a folder, as the name of a served model may be."""
    name = parse_location(location).resolve().name
    return folder_name(Path(TABLE_SUFFIX.sub("", name) or "table"))
