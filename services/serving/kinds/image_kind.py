"""Models of labelled images in a service: encoded files or tensors in, labels and scores out."""

import math
from collections.abc import Sequence, Sized
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from starlette.requests import Request
from torch import Tensor

from equipoise.bundle.kinds.image_bundle import ImageBundle
from equipoise.images.png import read_png_pixels
from equipoise.type_aliases import AnyArray
from services.http.errors import RequestRejected, too_many_pictures
from services.http.image_decoding import decode_image
from services.http.message_types import TensorMetadata
from services.http.prediction_types import PredictionReply
from services.http.request_body import extract_image
from services.http.tensor_codec import InferenceTensors, datatype_name
from services.serving.inference import ComparedOutputs, ComputedBatch, InferenceRequest, ModelOutput
from services.serving.kinds.served_kind import RawTensor, ServedKind, encode_strings, run_engine
from services.serving.model_versions import LoadedVersion

MAX_INLINE_BYTES, MAX_INLINE_PNG_BYTES = 32 << 10, 256 << 10  # of an encoded image that the event loop decodes
MAX_INLINE_PIXELS = 100_000  # of a PNG that the event loop decodes
IMAGES_INPUT, ENCODED_INPUT, LABELS_OUTPUT, SCORES_OUTPUT = "pictures", "encoded", "labels", "scores"


class ImageKind(ServedKind):
    """Requests of images for a classifier."""

    async def parse_body(self, request: Request, body: bytes) -> tuple[bytes, ...]:
        """Return the encoded image in the body of a request to /predict."""
        return (await extract_image(request, body),)

    def build_reply(self, model_name: str, identifier: str, output: ModelOutput) -> PredictionReply:
        """Build the reply to a request of one image; ValueError if its scores are not finite, which JSON cannot say."""
        return build_prediction_reply(
            model_name, identifier, output.version, output.labels[0], output.scores[0].tolist()
        )

    def can_decode_inline(self, request: InferenceRequest) -> bool:
        """Return whether the images of a request are decoded fast enough for the event loop."""
        images = request.content
        return isinstance(images, np.ndarray) or (len(images) == 1 and is_decoded_fast(images[0]))

    def decode_inputs(self, request: InferenceRequest) -> Any:
        """Return the images of a request as an array, or the error with which it is rejected."""
        if isinstance(request.content, np.ndarray):
            return request.content
        try:
            shape, max_pixels = find_shape(request.version), self.limits.pixels
            images = [decode_image(encoded, shape, max_pixels) for encoded in request.content]
        except RequestRejected as rejection:
            return rejection
        return images[0][None] if len(images) == 1 else np.stack(images)

    def select_tensors(self, decoded: NDArray[np.uint8]) -> tuple[Tensor, ...]:
        """Return the tensor of a request's images."""
        return (torch.from_numpy(decoded),)

    def run_version(
        self, version: LoadedVersion, decoded: Sequence[NDArray[np.uint8]], requests: Sequence[InferenceRequest]
    ) -> tuple[list[ModelOutput], ComputedBatch]:
        """Return the outputs of a version for several requests, computed in one batch."""
        # NumPy joins small arrays in a tenth of PyTorch's time
        images = torch.from_numpy(decoded[0] if len(decoded) == 1 else np.concatenate(decoded))
        logits, features = run_engine(version, (images,), requests)
        sources, encoded_images = list_origins(requests, decoded)
        batch = ComputedBatch(version, images, logits, features, sources, encoded_images)
        return split_outputs(version, logits, [len(part) for part in decoded]), batch

    def list_tensors(self, version: LoadedVersion) -> tuple[list[TensorMetadata], list[TensorMetadata]]:
        """Return the inputs and outputs of a model in the Open Inference Protocol."""
        return [
            TensorMetadata(name=IMAGES_INPUT, datatype="UINT8", shape=[-1, *find_shape(version)]),
            TensorMetadata(name=ENCODED_INPUT, datatype="BYTES", shape=[-1]),
        ], [
            TensorMetadata(name=LABELS_OUTPUT, datatype="BYTES", shape=[-1]),
            TensorMetadata(name=SCORES_OUTPUT, datatype="FP32", shape=[-1, len(version.bundle.classes)]),
        ]

    def describe_raw_tensor(self, version: LoadedVersion) -> RawTensor:
        """Return the tensor of a body that is nothing but the bytes of one."""
        return RawTensor(IMAGES_INPUT, "UINT8", (-1, *find_shape(version)))

    def parse_tensors(self, tensors: InferenceTensors, version: LoadedVersion) -> NDArray[np.uint8] | tuple[bytes, ...]:
        """Return the images in a request of the Open Inference Protocol."""
        return extract_images(tensors, find_shape(version), self.limits.batch)

    def output_tensors(self, output: ModelOutput) -> dict[str, AnyArray]:
        """Return the outputs in the Open Inference Protocol."""
        return {LABELS_OUTPUT: encode_strings(output.labels), SCORES_OUTPUT: output.scores}


def find_shape(version: LoadedVersion) -> tuple[int, ...]:
    """Return the channels, height and width of the images that a version takes."""
    return version.bundle.manifest.image_input.shape


def build_prediction_reply(
    model_name: str, identifier: str, version: LoadedVersion, label: str, scores: list[float]
) -> PredictionReply:
    """Build the reply of a classifier; ValueError if its scores are not finite, which JSON cannot say."""
    best = max(range(len(scores)), key=scores.__getitem__)
    if not math.isfinite(scores[best]):
        raise ValueError(f"the scores of model {model_name} are not finite")
    return PredictionReply(
        model=model_name,
        version=version.id,
        id=identifier,
        label=label,
        score=round(scores[best], 6),
        scores={name: round(score, 6) for name, score in zip(version.bundle.classes, scores, strict=True)},
    )


def is_decoded_fast(data: bytes) -> bool:
    """Return whether an encoded image is small: a PNG by its pixels, as its header gives them, and any by its bytes."""
    pixels = read_png_pixels(data)
    if pixels is None:
        return len(data) <= MAX_INLINE_BYTES
    return pixels <= MAX_INLINE_PIXELS and len(data) <= MAX_INLINE_PNG_BYTES


def list_origins(
    requests: Sequence[InferenceRequest], image_batches: Sequence[Sized]
) -> tuple[list[str | None], list[bytes | None]]:
    """Return the source of each image, and each image as it was sent, given the images of each request."""
    sources: list[str | None] = []
    encoded_images: list[bytes | None] = []
    for request, images in zip(requests, image_batches, strict=True):
        sources += [request.source] * len(images)
        encoded_images += request.content if isinstance(request.content, tuple) else [None] * len(images)
    return sources, encoded_images


def compare_versions(
    request: InferenceRequest, images: NDArray[np.uint8], known_output: ModelOutput
) -> ComparedOutputs:
    """Return the answers of two versions to the same images; waiting requests wait for this too."""
    if request.compared_versions is None:
        raise ValueError("cannot compare versions: the request names no versions to compare")
    current, other = (
        known_output if version is known_output.version else compute_single(version, images)
        for version in request.compared_versions
    )
    return ComparedOutputs(current, other)


def compute_single(version: LoadedVersion, images: NDArray[np.uint8]) -> ModelOutput:
    """Return the output of a version for the images of one request."""
    logits, _ = version.bundle.run_engine(torch.from_numpy(images))
    return split_outputs(version, logits, [len(images)])[0]


def split_outputs(version: LoadedVersion, logits: Tensor, image_counts: list[int]) -> list[ModelOutput]:
    """Split a version's outputs for a batch by request, given the number of images of each request."""
    bundle = version.bundle
    if not isinstance(bundle, ImageBundle):
        raise TypeError(f"{version.path} is no model of images")
    scores = bundle.probabilities(logits).numpy()
    labels = [bundle.classes[index] for index in logits.numpy().argmax(1).tolist()]
    if len(image_counts) == 1:
        return [ModelOutput(labels, scores, version)]
    return [
        ModelOutput(labels[end - size : end], scores[end - size : end], version)
        for end, size in zip(accumulate(image_counts), image_counts, strict=True)
    ]


def extract_images(
    request_tensors: InferenceTensors, shape: tuple[int, ...], max_images: int
) -> NDArray[np.uint8] | tuple[bytes, ...]:
    """Return the images of a request, checked against the model's input: an array, or encoded files."""
    if len(request_tensors.inputs) != 1 or (name := next(iter(request_tensors.inputs))) not in (
        IMAGES_INPUT,
        ENCODED_INPUT,
    ):
        raise RequestRejected(
            400,
            f"there must be one input, {IMAGES_INPUT} or {ENCODED_INPUT}, got"
            f" {', '.join(request_tensors.inputs)[:120]}",
        )
    array = request_tensors.inputs[name]
    if not array.ndim or not len(array):
        raise RequestRejected(400, f"{name} holds no image")
    if len(array) > max_images:
        raise too_many_pictures(max_images, len(array))
    if name == ENCODED_INPUT:
        if array.dtype != object or array.ndim != 1:
            raise RequestRejected(400, f"{ENCODED_INPUT} must be BYTES of the shape [images]")
        return tuple(array)
    if array.dtype != np.uint8 or array.shape[1:] != shape:
        wanted, got = ", ".join(map(str, shape)), f"{datatype_name(array)} {list(array.shape)}"
        raise RequestRejected(400, f"{IMAGES_INPUT} must be UINT8 of the shape [images, {wanted}], got {got}")
    return np.array(array)  # a copy: the body's memory is read-only
