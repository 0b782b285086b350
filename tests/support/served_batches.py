"""Batches of a served model for tests, without a bundle on disk."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

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
    return ComparedOutputs(
        build_output(current, np.array(scores, np.float32)), build_output(other, np.array(other_scores, np.float32))
    )


def build_output(version: LoadedVersion, scores: NDArray[np.float32]) -> ModelOutput:
    """Build a version's answer: the label of each image is the class of its highest score."""
    labels = [version.bundle.classes[index] for index in scores.argmax(1).tolist()]
    return ModelOutput(labels, scores, version)
