"""What goes into a model and comes out of it: requests, outputs and computed batches."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from services.http.errors import RequestRejected
from services.serving.model_versions import LoadedVersion


@dataclass(frozen=True)
class ModelOutput:
    """Answer of a version to one request, which may hold several images."""

    labels: list[str]
    scores: Tensor
    features: Tensor
    version: LoadedVersion


@dataclass(frozen=True, eq=False)
class InferenceRequest:
    """Images of one request, encoded or as one tensor, with the version that answers it."""

    images: tuple[bytes, ...] | Tensor
    version: LoadedVersion
    compared_versions: "tuple[LoadedVersion, LoadedVersion] | None" = None
    """the current version and another to compare it with: both compute the images, the second after the answer"""
    source: str | None = None
    """source of the images, as the client names it"""
    decoded: "Tensor | RequestRejected | None" = None
    """the images, if they were decoded before their batch is computed, or the reason why they cannot be"""


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


@dataclass(frozen=True, eq=False)
class ComparedOutputs:
    """Answers of two versions to the same images."""

    current: ModelOutput
    other: ModelOutput


class InferenceListener(Protocol):
    """Observer of batches and comparisons, called after their requests were answered."""

    def on_batch(self, model: str, batch: ComputedBatch) -> None:
        """Handle a batch that a version has computed."""

    def on_comparison(self, model: str, outputs: ComparedOutputs) -> None:
        """Handle the answers of two versions to the same images."""


def list_origins(
    requests: list[InferenceRequest], image_batches: list[Tensor]
) -> tuple[list[str | None], list[bytes | None]]:
    """Return the source of each image, and each image as it was sent, given the images of each request."""
    sources: list[str | None] = []
    encoded_images: list[bytes | None] = []
    for request, images in zip(requests, image_batches, strict=True):
        sources += [request.source] * len(images)
        encoded_images += [None] * len(images) if isinstance(request.images, Tensor) else request.images
    return sources, encoded_images
