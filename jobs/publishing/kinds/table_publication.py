"""Publication of models of tables: classifiers, and predictors of numbers with an interval."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from equipoise.bundle.engine_benchmark import compute_outputs
from equipoise.bundle.engines import Engine
from equipoise.bundle.evaluation import Evaluation, choose_temperature, evaluate_predictions
from equipoise.bundle.kinds.base_bundle import INPUT_PREFIX
from equipoise.bundle.kinds.image_input import FEATURES_TENSOR, LOGITS_TENSOR
from equipoise.bundle.kinds.regression import RegressionEvaluation, evaluate_regression
from equipoise.bundle.kinds.table_input import VALUES_TENSOR, list_table_inputs
from equipoise.bundle.manifest import Metrics
from equipoise.drift.features.table_stats import ANSWER_BIN_NAMES, select_watched_columns
from equipoise.drift.profiling.bundle_profile import collect_answered_rows
from equipoise.drift.profiling.profile_arrays import collect_profile_arrays
from equipoise.drift.profiling.row_profile import AnsweredRows, build_table_profile
from equipoise.spacing import evenly_spaced_indices
from equipoise.tables.spec import TableSpec
from equipoise.type_aliases import AnyArray, FloatArray
from equipoise.workloads import Split
from equipoise.workloads.table.regression import r2_score, residuals_and_targets
from equipoise.workloads.table.workload import TableWorkload
from jobs.publishing.kinds.publication import HeldOutFindings, Publication, add_drift_findings, list_inputs
from jobs.publishing.known_conditions import LearnedCondition

MAX_KEPT_ROWS = 200  # rows of the reference kept in the bundle, with which a service tests itself
MAX_PROFILE_ROWS = 5_000  # rows of the reference that the drift profile is built from
MAX_COLUMN_STATISTICS = 200  # of all watched columns: with 16 columns of numbers the profile takes about a minute


class TablePublication(Publication):
    """Publication of a model of a table."""

    def __init__(self, workload: TableWorkload) -> None:
        self.workload: TableWorkload = workload
        self.is_classification = workload.spec.label.kind == "class"
        self.tensors = list_table_inputs(workload.spec)
        self.input_names = tuple(tensor.name for tensor in self.tensors)
        first_output = LOGITS_TENSOR if self.is_classification else VALUES_TENSOR
        self.output_names = (first_output, FEATURES_TENSOR)

    def describe_inputs(self) -> dict[str, Any]:
        """Return the fields of the manifest on the columns that the model takes."""
        return {"kind": "table", "table": self.workload.spec, "inputs": self.tensors}

    def evaluate(self, run_engine: Engine, include_drift: bool, learned: Sequence[LearnedCondition]) -> HeldOutFindings:
        """Evaluate a model of a table, keep its outputs on the reference split, and profile that against drift."""
        workload = self.workload
        splits = {name: getattr(workload, name) for name in ("validation", "reference", "test")}
        outputs = {name: compute_outputs(run_engine, list_inputs(split.inputs)) for name, split in splits.items()}
        first_outputs = {name: tensors[0] for name, tensors in outputs.items()}
        evaluate = self._evaluate_classes if self.is_classification else self._evaluate_numbers
        places = evenly_spaced_indices(len(workload.reference), MAX_KEPT_ROWS)
        kept = self.sample_inputs(workload.reference, MAX_KEPT_ROWS)
        arrays = {
            **{name: tensor.numpy() for name, tensor in zip(self.output_names, outputs["reference"], strict=True)},
            **{f"{INPUT_PREFIX}{name}": tensor.numpy() for name, tensor in zip(self.input_names, kept, strict=True)},
            "labels": workload.reference.targets.numpy(),
            "places": places,
        }
        metrics = evaluate(first_outputs)
        if not include_drift:
            return HeldOutFindings(metrics=metrics, arrays=arrays)
        return self._add_drift_profile(metrics, arrays, outputs)

    def _add_drift_profile(
        self, metrics: Metrics, arrays: dict[str, Any], outputs: Mapping[str, Sequence[Tensor]]
    ) -> HeldOutFindings:
        """Profile the reference split; false alarms are counted on the validation split."""
        temperature = metrics.temperature if isinstance(metrics, Evaluation) else 1.0
        split_columns = self.workload.read_columns()
        names = select_watched_columns(split_columns["reference"], MAX_COLUMN_STATISTICS)
        reference, holdout = (
            sample_answered_rows(
                {name: split_columns[split][name] for name in names}, outputs[split], self._targets(split), temperature
            )
            for split in ("reference", "validation")
        )
        class_names = self.workload.classes or ANSWER_BIN_NAMES
        drift_arrays = collect_profile_arrays(lambda: build_table_profile(reference, class_names, holdout))
        return add_drift_findings(metrics, arrays, drift_arrays, describe_unwatched_columns(self.workload.spec, names))

    def _evaluate_classes(self, logits: dict[str, Tensor]) -> Evaluation:
        pairs = {name: (values.numpy(), self._targets(name).numpy()) for name, values in logits.items()}
        temperature = choose_temperature(*pairs["validation"], *pairs["reference"])
        return evaluate_predictions(*pairs["test"], list(self.workload.classes), temperature)

    def _evaluate_numbers(self, values: dict[str, Tensor]) -> RegressionEvaluation:
        """Evaluate predicted numbers; the interval is fitted to the validation split."""
        r2 = r2_score(residuals_and_targets(values["test"], self._targets("test")))
        errors = {name: self._measure_errors(values[name], self._targets(name)) for name in ("test", "validation")}
        return evaluate_regression(r2, errors["test"], errors["validation"])

    def _measure_errors(self, values: Tensor, targets: Tensor) -> FloatArray:
        """Return the errors of standardized numbers in the unit of the label."""
        errors: FloatArray = (values.double() - targets.double()).numpy() * self.workload.spec.label.scale
        return errors

    def _targets(self, split_name: str) -> Tensor:
        split: Split = getattr(self.workload, split_name)
        targets: Tensor = split.targets
        return targets


def sample_answered_rows(
    columns: Mapping[str, AnyArray], outputs: Sequence[Tensor], targets: Tensor, temperature: float
) -> AnsweredRows:
    """Return up to MAX_PROFILE_ROWS rows of a split with the model's outputs and features for them."""
    places = evenly_spaced_indices(len(targets), MAX_PROFILE_ROWS)
    sampled = {name: column[places] for name, column in columns.items()}
    answers, features = (tensor[torch.from_numpy(places)] for tensor in outputs)
    rows = collect_answered_rows(sampled, answers, features, temperature)
    return replace(rows, targets=targets.numpy()[places])


def describe_unwatched_columns(spec: TableSpec, watched: Sequence[str]) -> str | None:
    """Return a sentence on columns beyond those that are watched by themselves; None if all are."""
    if len(watched) == len(spec.columns):
        return None
    return (
        f"the first {len(watched)} of {len(spec.columns)} columns are watched by themselves, and the others through the"
        " features of the model: put the columns that are likely to change first"
    )
