"""Error of a model on the rows of a file that have a label."""

import numpy as np
import torch
from torch import Tensor

from equipoise.bundle.evaluation import Evaluation
from equipoise.bundle.kinds.regression import RegressionEvaluation
from equipoise.bundle.kinds.table_bundle import TableBundle
from equipoise.drift.diagnosis.dataset_findings import MeasuredError
from equipoise.tables.labels import format_class
from equipoise.workloads.table.series_values import read_series
from jobs.checking.table_rows import TableRows


def measure_label_error(model: TableBundle, rows: TableRows, outputs: Tensor) -> MeasuredError | None:
    """Measure the error on the rows that have a label; None where there are none, or the label is of another kind.

    A class that the model does not know counts as an error.
    """
    label, metrics = model.spec.label, model.manifest.metrics
    if label.name not in rows.frame.columns:
        return None
    series = rows.frame[label.name]
    is_known = series.notna().to_numpy()
    if not is_known.any():
        return None
    kind, values = read_series(series)
    chosen = outputs[torch.tensor(is_known)]
    count = int(is_known.sum())
    if isinstance(metrics, Evaluation):
        known = [value for value, use in zip(values, is_known, strict=True) if use]
        labels = [format_class(bool(value) if kind == "boolean" else value) for value in known]
        answers = [model.classes[index] for index in chosen.argmax(1).tolist()]
        share = float(np.mean([answer == label for answer, label in zip(answers, labels, strict=True)]))
        return MeasuredError(metric="accuracy", value=share, published=metrics.accuracy, examples=count)
    if kind != "number" or not isinstance(metrics, RegressionEvaluation):
        return None
    errors = label.decode_numbers(chosen.numpy().astype(np.float64)) - np.asarray(values)[is_known]
    error = float(np.sqrt(np.square(errors).mean()))
    return MeasuredError(metric="root mean squared error", value=error, published=metrics.rmse, examples=count)
