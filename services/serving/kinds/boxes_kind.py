"""Detectors in a service: encoded files or tensors in, boxes with labels and scores out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from starlette.requests import Request
from torch import Tensor

from equipoise.boxes.found_box import FoundBox
from equipoise.bundle.kinds.boxes_bundle import BoxesBundle
from equipoise.images.placement import ImagePlacement
from equipoise.type_aliases import AnyArray
from services.http.errors import RequestRejected
from services.http.image_decoding import decode_placed_image
from services.http.message_types import TensorMetadata
from services.http.prediction_types import BoxesReply, BoxReply
from services.http.request_body import extract_image
from services.http.tensor_codec import InferenceTensors
from services.serving.inference import BoxesBatch, InferenceRequest
from services.serving.kinds.image_kind import (
    ENCODED_INPUT,
    IMAGES_INPUT,
    LABELS_OUTPUT,
    SCORES_OUTPUT,
    extract_images,
    is_decoded_fast,
    list_origins,
)
from services.serving.kinds.served_kind import RawTensor, ServedKind, encode_strings, run_engine
from services.serving.model_versions import LoadedVersion

BOXES_OUTPUT, THRESHOLD_OUTPUT = "boxes", "threshold"
PIXEL_DIGITS, SCORE_DIGITS = 2, 6  # of numbers in JSON


@dataclass(frozen=True)
class PlacedImages:
    """Images as a model takes them, and where each photograph lies in its image; None for tensors."""

    images: Tensor
    placements: tuple[ImagePlacement, ...] | None = None

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class BoxesOutput:
    """Answer of a version to one request, which may hold several images."""

    version: LoadedVersion
    scores: Tensor
    """(images, boxes)"""
    boxes: Tensor
    """(images, boxes, 4) in pixels of the model's input"""
    labels: Tensor
    """(images, boxes)"""
    placements: tuple[ImagePlacement, ...] | None
    """where each photograph lies in its image; None for tensors"""


class BoxesKind(ServedKind):
    """Requests of images for a detector."""

    async def parse_body(self, request: Request, body: bytes) -> tuple[bytes, ...]:
        """Return the encoded image in the body of a request to /predict."""
        return (await extract_image(request, body),)

    def build_reply(self, model_name: str, identifier: str, output: BoxesOutput) -> BoxesReply:
        """Build the reply to a request of one image."""
        if output.placements is None:
            raise ValueError("the request held tensors, which have no reply of boxes")
        (placement,) = output.placements
        bundle = find_detector(output.version)
        found = bundle.read_boxes(output.scores[0], output.boxes[0], output.labels[0], placement)
        if not all(math.isfinite(value) for box in found for value in (box.x, box.y, box.width, box.height)):
            raise ValueError(f"the boxes of model {model_name} are not finite")
        return BoxesReply(
            model=model_name,
            version=output.version.id,
            id=identifier,
            width=placement.width,
            height=placement.height,
            boxes=[build_box_reply(box) for box in found],
        )

    def can_decode_inline(self, request: InferenceRequest) -> bool:
        """Return whether the images of a request are decoded fast enough for the event loop."""
        images = request.content
        return isinstance(images, np.ndarray) or (len(images) == 1 and is_decoded_fast(images[0]))

    def decode_inputs(self, request: InferenceRequest) -> Any:
        """Return the images of a request, or the error with which it is rejected."""
        if isinstance(request.content, np.ndarray):
            return PlacedImages(torch.from_numpy(request.content))
        size, max_pixels = find_detector(request.version).shape[1], self.limits.pixels
        try:
            placed = [decode_placed_image(encoded, size, max_pixels) for encoded in request.content]
        except RequestRejected as rejection:
            return rejection
        images, placements = zip(*placed, strict=True)
        return PlacedImages(torch.stack(images), placements)

    def select_tensors(self, decoded: PlacedImages) -> tuple[Tensor, ...]:
        """Return the tensor of a request's images."""
        return (decoded.images,)

    def run_version(
        self, version: LoadedVersion, decoded: Sequence[PlacedImages], requests: Sequence[InferenceRequest]
    ) -> tuple[list[BoxesOutput], BoxesBatch]:
        """Return the outputs of a version for several requests, computed in one batch."""
        images = decoded[0].images if len(decoded) == 1 else torch.cat([part.images for part in decoded])
        scores, boxes, labels, features = run_engine(version, (images,), requests)
        parts = [(scores, boxes, labels)]
        if len(decoded) > 1:
            counts = [len(part) for part in decoded]
            parts = [*zip(*(output.split(counts) for output in parts[0]), strict=True)]
        answers = [
            BoxesOutput(version, *tensors, part.placements) for part, tensors in zip(decoded, parts, strict=True)
        ]
        origins = list_origins(requests, [part.images for part in decoded])
        return answers, BoxesBatch(version, images, scores, boxes, labels, features, *origins)

    def list_tensors(self, version: LoadedVersion) -> tuple[list[TensorMetadata], list[TensorMetadata]]:
        """Return the inputs and outputs of a model in the Open Inference Protocol."""
        bundle = find_detector(version)
        count = bundle.max_boxes
        return [
            TensorMetadata(name=IMAGES_INPUT, datatype="UINT8", shape=[-1, *bundle.shape]),
            TensorMetadata(name=ENCODED_INPUT, datatype="BYTES", shape=[-1]),
        ], [
            TensorMetadata(name=BOXES_OUTPUT, datatype="FP32", shape=[-1, count, 4]),
            TensorMetadata(name=SCORES_OUTPUT, datatype="FP32", shape=[-1, count]),
            TensorMetadata(name=LABELS_OUTPUT, datatype="BYTES", shape=[-1, count]),
            TensorMetadata(name=THRESHOLD_OUTPUT, datatype="FP32", shape=[-1]),
        ]

    def describe_raw_tensor(self, version: LoadedVersion) -> RawTensor:
        """Return the tensor of a body that is nothing but the bytes of one."""
        return RawTensor(IMAGES_INPUT, "UINT8", (-1, *find_detector(version).shape))

    def parse_tensors(self, tensors: InferenceTensors, version: LoadedVersion) -> NDArray[np.uint8] | tuple[bytes, ...]:
        """Return the images in a request of the Open Inference Protocol."""
        return extract_images(tensors, find_detector(version).shape, self.limits.batch)

    def output_tensors(self, output: BoxesOutput) -> dict[str, AnyArray]:
        """Return the outputs in the Open Inference Protocol: all boxes, and the score from which one counts."""
        bundle = find_detector(output.version)
        names = [bundle.classes[label] if label >= 0 else "" for label in output.labels.flatten().tolist()]
        return {
            BOXES_OUTPUT: list_photograph_boxes(output),
            SCORES_OUTPUT: output.scores.numpy(),
            LABELS_OUTPUT: encode_strings(names).reshape(output.labels.shape),
            THRESHOLD_OUTPUT: np.full(len(output.scores), bundle.threshold, np.float32),
        }


def list_photograph_boxes(output: BoxesOutput) -> AnyArray:
    """Return the boxes (images, boxes, 4) of an answer in pixels of what was sent: photographs, or tensors."""
    boxes = output.boxes.numpy()
    if output.placements is None:
        return boxes
    pairs = zip(output.placements, boxes, strict=True)
    return np.stack([placement.to_photograph(image_boxes) for placement, image_boxes in pairs])


def build_box_reply(box: FoundBox) -> BoxReply:
    """Return a box with numbers that are short in JSON."""
    sides = {name: round(getattr(box, name), PIXEL_DIGITS) for name in ("x", "y", "width", "height")}
    return BoxReply(label=box.label, score=round(box.score, SCORE_DIGITS), **sides)


def find_detector(version: LoadedVersion) -> BoxesBundle:
    """Return the bundle of a version, which must be a detector."""
    if not isinstance(version.bundle, BoxesBundle):
        raise TypeError(f"{version.path} is no detector")
    return version.bundle
