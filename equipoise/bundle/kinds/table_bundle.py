"""Published model of a table: rows of columns in, a class or a number out."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from equipoise.bundle.kinds.base_bundle import Bundle
from equipoise.bundle.kinds.predictions import NumberPrediction, Prediction, calibrate_scores, name_best_classes
from equipoise.bundle.kinds.regression import RegressionEvaluation
from equipoise.bundle.manifest import Manifest
from equipoise.errors import EquipoiseError
from equipoise.tables.spec import TableSpec

MAX_BATCH_ROWS = 1024  # computed at a time


class TableBundle(Bundle):
    """Published model of a table.

    Attributes:
        spec: columns of the rows that the model takes, and its label
    """

    spec: TableSpec

    def __init__(self, folder: Path, manifest: Manifest, engine_name: str | None = None) -> None:
        """Load the verified bundle in `folder`; refuse one that does not run.

        `engine_name` overrides the engine chosen at publication (the fastest), for comparisons.
        """
        if manifest.table is None:
            raise EquipoiseError("bundle-kind", f"{manifest.name} is not a model of a table")
        self.spec = manifest.table
        super().__init__(folder, manifest, engine_name)

    def predict_rows(self, rows: Sequence[Mapping[str, object]]) -> Prediction | NumberPrediction:
        """Predict the label of rows, each of which gives a value for every column by its name; None is a missing one.

        Return classes with their scores, or numbers with intervals, by the kind of the label.
        """
        if isinstance(rows, Mapping) or not rows:
            raise EquipoiseError(
                "row-invalid", f"cannot predict with {self.name}: got {'one row' if rows else 'no row'}", "give a list"
            )
        inputs = self.encode_rows(rows)
        parts = zip(*(tensor.split(MAX_BATCH_ROWS) for tensor in inputs), strict=True)
        outputs = zip(*(self.run_engine(*part) for part in parts), strict=True)
        return self.read_outputs(*(torch.cat(tensors) for tensors in outputs))

    def encode_rows(self, rows: Sequence[Mapping[str, object]]) -> tuple[Tensor, ...]:
        """Return the tensors that the model takes for rows."""
        inputs = self.spec.encode_rows(rows)
        return tuple(map(torch.from_numpy, inputs if isinstance(inputs, tuple) else (inputs,)))

    def read_outputs(self, outputs: Tensor, features: Tensor) -> Prediction | NumberPrediction:
        """Return the predictions that the model's output tensors stand for."""
        metrics = self.manifest.metrics
        if not isinstance(metrics, RegressionEvaluation):
            scores = calibrate_scores(outputs, self.manifest.classification.temperature)
            return Prediction(name_best_classes(self.classes, outputs), scores, features)
        values = self.spec.label.decode_numbers(outputs.numpy().astype(np.float64))
        if metrics.half_width is None:
            return NumberPrediction(values.tolist(), None, None, features)
        low, high = (values + sign * metrics.half_width for sign in (-1, 1))
        return NumberPrediction(values.tolist(), low.tolist(), high.tolist(), features)
