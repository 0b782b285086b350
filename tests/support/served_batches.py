"""Batches of a served model for tests, without a bundle on disk."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from services.serving.inference import ComparedOutputs, ComputedBatch, ModelOutput
from services.serving.model_versions import DRIFT_DETECTION_OFF, LoadedVersion


def build_version(
    version: str = "v1", classes: Sequence[str] = ("ant", "bee"), reference: Any = DRIFT_DETECTION_OFF, engine="onnx"
) -> LoadedVersion:
    """Build a loaded version whose bundle has only an engine's name and classes."""
    bundle: Any = SimpleNamespace(engine_name=engine, classes=[*classes])
    return LoadedVersion(bundle, "bundles/any", version, reference)


def build_batch(version: LoadedVersion, count: int = 1, shape: tuple[int, ...] = (1, 2, 2)) -> ComputedBatch:
    """Build a batch of so many black images."""
    num_classes = len(version.bundle.classes)
    images, logits = torch.zeros(count, *shape, dtype=torch.uint8), torch.zeros(count, num_classes)
    return ComputedBatch(version, images, logits, torch.zeros(count, 3), [None] * count, [None] * count)


def build_comparison(
    current: LoadedVersion, scores: Sequence[Sequence[float]], other: LoadedVersion, other_scores: Any
) -> ComparedOutputs:
    """Build the answers of two versions to the same images from their scores."""
    return ComparedOutputs(build_output(current, torch.tensor(scores)), build_output(other, torch.tensor(other_scores)))


def build_output(version: LoadedVersion, scores: Tensor) -> ModelOutput:
    """Build a version's answer: the label of each image is the class of its highest score."""
    labels = [version.bundle.classes[index] for index in scores.argmax(1).tolist()]
    return ModelOutput(labels, scores, torch.zeros(len(scores), 3), version)
