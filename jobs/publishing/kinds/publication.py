"""What a publication needs to know about a kind of data: the module to export, the evaluation and the reference."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from equipoise.bundle.engine_benchmark import compare_classes, compare_values
from equipoise.bundle.engines import Engine
from equipoise.bundle.kinds.inference_module import FeatureModule
from equipoise.bundle.manifest import Metrics
from equipoise.bundle.tensor_checks import describe_tensor
from equipoise.bundle.tensor_spec import TensorSpec
from equipoise.spacing import evenly_spaced_indices
from equipoise.workloads import Split, Workload
from equipoise.workloads.batch import Batch
from jobs.publishing.known_conditions import LearnedCondition
from jobs.publishing.reference_arrays import find_false_alarm_rate, find_reference_warning

BATCH_EXAMPLES = 64  # computed at a time


@dataclass(frozen=True, kw_only=True)
class HeldOutFindings:
    """What the held-out splits say about a model: its evaluation, and the reference that requests are compared with."""

    metrics: Metrics
    arrays: dict[str, Any] = field(default_factory=dict)
    """arrays of reference.npz"""
    warning: str | None = None
    """one sentence on a reference that does not allow to detect drift, or not well; None if it does"""
    false_alarm_rate: str | None = None
    """one sentence on the false alarms counted on held-out examples; None if none were counted"""


class Publication(ABC):
    """Publication of a model of one kind of data."""

    workload: Workload
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    is_classification: bool = True
    """whether engines must agree on the class with the highest score too"""
    open_dimensions: tuple[int, ...] = (0,)
    """dimensions of the outputs that may have any size"""

    def wrap_model(self, model: nn.Module, head_name: str | None) -> nn.Module:
        """Return the module to export; the input of the layer `head_name`, if there is one, is the features."""
        return FeatureModule(model, head_name)

    def sample_inputs(self, split: Split, max_count: int) -> tuple[Tensor, ...]:
        """Return the inputs of up to `max_count` examples, evenly spaced over a split."""
        inputs, _ = split.read_examples(evenly_spaced_indices(len(split), max_count))
        return list_inputs(inputs)

    def describe_outputs(self, module: nn.Module) -> tuple[TensorSpec, ...]:
        """Return the tensors that the exported module returns."""
        with torch.inference_mode():
            outputs = module(*self.sample_inputs(self.workload.test, 2))
        return tuple(
            describe_tensor(name, output, self.open_dimensions)
            for name, output in zip(self.output_names, outputs, strict=True)
        )

    def compare_outputs(self, expected: Sequence[Tensor], outputs: Sequence[Tensor]) -> tuple[float, bool]:
        """Return the largest relative error of an engine's outputs, and whether they agree with those expected."""
        return (compare_classes if self.is_classification else compare_values)(expected, outputs)

    @abstractmethod
    def describe_inputs(self) -> dict[str, Any]:
        """Return the fields of the manifest on the kind of data and the inputs."""

    @abstractmethod
    def evaluate(self, run_engine: Engine, include_drift: bool, learned: Sequence[LearnedCondition]) -> HeldOutFindings:
        """Evaluate a published model on the held-out splits, and build its reference."""


def add_drift_findings(
    metrics: Metrics, arrays: dict[str, Any], drift_arrays: dict[str, Any], limit: str | None = None
) -> HeldOutFindings:
    """Return the findings with the arrays of a drift profile, and the sentences on its size and its false alarms.

    `limit` is a sentence on what the profile leaves out, if it does.
    """
    sentences = [*filter(None, (find_reference_warning(drift_arrays), limit))]
    return HeldOutFindings(
        metrics=metrics,
        arrays=arrays | drift_arrays,
        warning="; ".join(sentences) or None,
        false_alarm_rate=find_false_alarm_rate(drift_arrays),
    )


def list_inputs(inputs: Batch) -> tuple[Tensor, ...]:
    """Return the tensors of a batch that a model takes as positional arguments."""
    return inputs if isinstance(inputs, tuple) else (inputs,)


def read_batches(split: Split) -> Iterator[tuple[tuple[Tensor, ...], Any]]:
    """Yield the input tensors and the targets of a split, some examples at a time, in order."""
    for start in range(0, len(split), BATCH_EXAMPLES):
        inputs, targets = split.read_examples(np.arange(start, min(start + BATCH_EXAMPLES, len(split))))
        yield list_inputs(inputs), targets
