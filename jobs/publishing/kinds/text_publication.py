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
from equipoise.workloads.text.workload import TextWorkload
from jobs.publishing.kinds.publication import HeldOutFindings, Publication, read_batches
from jobs.publishing.known_conditions import LearnedCondition

MAX_KEPT_WINDOWS = 16  # windows of the reference kept in the bundle, with which a service tests itself
NOT_WATCHED = "the service does not compare texts with a reference yet, and so cannot detect their drift"


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
        """Measure the nats of a language model on the test split, and keep its outputs on a few windows."""
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
        return HeldOutFindings(metrics=metrics, arrays=arrays, warning=NOT_WATCHED if include_drift else None)
