"""What goes into a model and comes out of it: requests, outputs and computed batches."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from services.serving.model_versions import LoadedVersion


@dataclass(frozen=True)
class ModelOutput:
    """Answer of a version of a classifier of images to one request, which may hold several images."""

    labels: list[str]
    scores: NDArray[np.float32]
    """(images, classes)"""
    version: LoadedVersion


@dataclass(frozen=True, eq=False)
class InferenceRequest:
    """Content of one request, with the version that answers it."""

    content: Any
    """images, rows or a text as the client sent them, or arrays"""
    version: LoadedVersion
    compared_versions: "tuple[LoadedVersion, LoadedVersion] | None" = None
    """the current version and another to compare it with: both compute the images, the second after the answer"""
    source: str | None = None
    """source of the images, as the client names it"""
    decoded: Any = None
    """the inputs, if they were decoded before their batch is computed, or the reason why they cannot be"""
    part_outputs: tuple[Tensor, ...] = ()
    """what the last part of the engine takes, if the parts before it have run already"""


class AnsweredBatch(Protocol):
    """Batch of examples that a version has answered."""

    @property
    def version(self) -> LoadedVersion:
        """Version that answered all of it."""

    @property
    def sources(self) -> list[str | None]:
        """Source of each example, as its client names it."""

    @property
    def num_bytes(self) -> int:
        """Bytes that are kept until the batch has been observed."""


@dataclass(frozen=True, eq=False)
class ComputedBatch:
    """Batch of images that a version has computed, with its outputs."""

    version: LoadedVersion
    images: Tensor
    logits: Tensor
    features: Tensor
    sources: list[str | None]
    """source of each image"""
    encoded_images: list[bytes | None]
    """each image as its client sent it; None if it came as a tensor"""

    @property
    def num_bytes(self) -> int:
        """Bytes of the decoded images."""
        return self.images.nbytes


@dataclass(frozen=True, eq=False)
class RowsBatch:
    """Batch of rows of a table that a version has computed, with its outputs."""

    version: LoadedVersion
    contents: list[Mapping[str, Any] | tuple[Tensor, ...]]
    """what each request holds: one row as its client sent it, or the encoded tensors of several"""
    outputs: Tensor
    features: Tensor
    sources: list[str | None]
    """source of each row"""

    @property
    def num_bytes(self) -> int:
        """Bytes of the outputs; rows are small."""
        return self.outputs.nbytes + self.features.nbytes


@dataclass(frozen=True, eq=False)
class WindowsBatch:
    """Batch of windows of texts that a language model has computed, with its logits."""

    version: LoadedVersion
    windows: list[Tensor]
    """tokens (windows, length) of each request: one window of a text, or all that were sent as tokens"""
    logits: list[Tensor]
    """(windows, length, vocabulary) of each request"""
    texts: list[str | None]
    """what the window of each request reads in its text; None for tokens"""
    sources: list[str | None]
    """source of each window"""

    @property
    def num_bytes(self) -> int:
        """Bytes of the logits."""
        return sum(part.nbytes for part in self.logits)


@dataclass(frozen=True, eq=False)
class BoxesBatch:
    """Batch of images in which a detector has found boxes, with its outputs."""

    version: LoadedVersion
    images: Tensor
    scores: Tensor
    """(images, boxes)"""
    boxes: Tensor
    """(images, boxes, 4) in pixels of the input"""
    labels: Tensor
    """(images, boxes)"""
    features: Tensor
    sources: list[str | None]
    """source of each image"""
    encoded_images: list[bytes | None]
    """each image as its client sent it; None if it came as a tensor"""

    @property
    def num_bytes(self) -> int:
        """Bytes of the decoded images."""
        return self.images.nbytes


@dataclass(frozen=True, eq=False)
class ComparedOutputs:
    """Answers of two versions to the same images."""

    current: ModelOutput
    other: ModelOutput


class InferenceListener(Protocol):
    """Observer of batches and comparisons, called after their requests were answered."""

    def on_batch(self, model: str, batch: AnsweredBatch) -> None:
        """Handle a batch that a version has computed."""

    def on_comparison(self, model: str, outputs: ComparedOutputs) -> None:
        """Handle the answers of two versions to the same images."""
