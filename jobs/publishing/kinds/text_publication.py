"""Publication of language models of characters."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from equipoise.bundle.engine_benchmark import compute_outputs
from equipoise.bundle.engines import Engine
from equipoise.bundle.kinds.base_bundle import INPUT_PREFIX
from equipoise.bundle.kinds.image_input import LOGITS_TENSOR
from equipoise.bundle.kinds.language import LanguageEvaluation
from equipoise.bundle.kinds.text_input import TOKENS_TENSOR, TextInput
from equipoise.drift.profiling.bundle_profile import collect_answered_windows
from equipoise.drift.profiling.profile_arrays import collect_profile_arrays
from equipoise.drift.profiling.row_profile import AnsweredTexts, build_text_profile, concat_answered_texts
from equipoise.workloads import Split
from equipoise.workloads.text.workload import TextWorkload
from jobs.publishing.kinds.publication import (
    BATCH_EXAMPLES,
    HeldOutFindings,
    Publication,
    add_drift_findings,
    read_batches,
)
from jobs.publishing.known_conditions import LearnedCondition

MAX_KEPT_WINDOWS = 16  # windows of the reference kept in the bundle, with which a service tests itself
MAX_PROFILE_WINDOWS = 20_000  # windows of the reference that the drift profile is built from


class LanguageModule(nn.Module):
    """Language model that returns its scores of the next token as the only output."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> tuple[Tensor]:
        """Return the logits (windows, length, vocabulary)."""
        return (self.model(tokens),)


class TextPublication(Publication):
    """Publication of a language model."""

    input_names = (TOKENS_TENSOR,)
    output_names = (LOGITS_TENSOR,)
    open_dimensions = 0, 1
    is_classification = False

    def __init__(self, workload: TextWorkload) -> None:
        self.workload: TextWorkload = workload

    def wrap_model(self, model: nn.Module, head_name: str | None) -> nn.Module:
        """Return the module to export."""
        return LanguageModule(model)

    def describe_inputs(self) -> dict[str, Any]:
        """Return the fields of the manifest on the texts that the model takes."""
        text = TextInput(characters=self.workload.vocabulary.characters, window=self.workload.window)
        return {"kind": "text", "text": text, "inputs": text.list_inputs()}

    def evaluate(self, run_engine: Engine, include_drift: bool, learned: Sequence[LearnedCondition]) -> HeldOutFindings:
        """Measure the nats of a language model, keep its outputs on a few windows, and profile the reference."""
        rows = [
            self.workload.metric(run_engine(*inputs)[0], targets)
            for inputs, targets in read_batches(self.workload.test)
        ]
        metrics = LanguageEvaluation(
            nats_per_token=float(torch.cat(rows).double().mean()), tokens=self.workload.test.targets.numel()
        )
        kept = self.sample_inputs(self.workload.reference, MAX_KEPT_WINDOWS)
        arrays = {
            LOGITS_TENSOR: compute_outputs(run_engine, kept)[0].numpy(),
            f"{INPUT_PREFIX}{TOKENS_TENSOR}": kept[0].numpy(),
            "places": np.arange(len(kept[0])),
        }
        if not include_drift:
            return HeldOutFindings(metrics=metrics, arrays=arrays)
        return add_drift_findings(metrics, arrays, self._build_drift_arrays(run_engine))

    def _build_drift_arrays(self, run_engine: Engine) -> dict[str, Any]:
        """Build the arrays of the drift profile; false alarms are counted on the validation split."""
        reference, holdout = (
            self._answer_windows(run_engine, split) for split in (self.workload.reference, self.workload.validation)
        )
        characters = self.workload.vocabulary.characters
        return collect_profile_arrays(lambda: build_text_profile(reference, holdout, characters))

    def _answer_windows(self, run_engine: Engine, split: Split) -> AnsweredTexts:
        """Return up to MAX_PROFILE_WINDOWS windows of a split, and how well the model predicts them."""
        (windows,) = self.sample_inputs(split, MAX_PROFILE_WINDOWS)
        parts = [
            collect_answered_windows(self.workload.vocabulary, part, run_engine(part)[0])
            for part in windows.split(BATCH_EXAMPLES)
        ]
        return concat_answered_texts(parts)
