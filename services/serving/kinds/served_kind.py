"""What a service needs to know about a kind of data: how requests hold it, and how they are answered."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from starlette.requests import Request
from torch import Tensor

from equipoise.bundle.engines import Engine
from equipoise.type_aliases import AnyArray
from services.http.errors import RequestRejected, content_type_is_not_json
from services.http.message_types import TensorMetadata
from services.http.tensor_codec import InferenceTensors, datatype_name, parse_json_object
from services.limits import Limits
from services.serving.inference import AnsweredBatch, InferenceRequest
from services.serving.model_versions import LoadedVersion

JSON_CONTENT_TYPES = ("application/json", "application/x-www-form-urlencoded", "")  # curl's, unless a type is given


class RawTensor(NamedTuple):
    """Tensor of a body that is nothing but its bytes; the first size follows from their number."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class ServedKind(ABC):
    """Requests for models of one kind of data. It has no state: versions of a model share it."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    @abstractmethod
    async def parse_body(self, request: Request, body: bytes) -> Any:
        """Return the content of a request to /predict."""

    @abstractmethod
    def build_reply(self, model_name: str, identifier: str, output: Any) -> Any:
        """Build the reply to a request to /predict."""

    def can_decode_inline(self, request: InferenceRequest) -> bool:
        """Return whether the content of a request is decoded fast enough for the event loop."""
        return True

    @abstractmethod
    def decode_inputs(self, request: InferenceRequest) -> Any:
        """Return the inputs of a request, whose length is its number of examples, or the error that rejects it."""

    def select_tensors(self, decoded: Any) -> tuple[Tensor, ...]:
        """Return the input tensors of one request, for an engine in parts; none where engines run as a whole."""
        return ()

    def run_part(self, part: Engine, request: InferenceRequest) -> InferenceRequest:
        """Return a request with the outputs of the next part of its version's engine; one without inputs as it is."""
        tensors = request.part_outputs
        if not tensors and not isinstance(request.decoded, RequestRejected):
            tensors = self.select_tensors(request.decoded)
        return replace(request, part_outputs=part(*tensors)) if tensors else request

    @abstractmethod
    def run_version(
        self, version: LoadedVersion, decoded: Sequence[Any], requests: Sequence[InferenceRequest]
    ) -> tuple[list[Any], AnsweredBatch]:
        """Return the output of a version for each of several requests, and all of them as one batch."""

    @abstractmethod
    def list_tensors(self, version: LoadedVersion) -> tuple[list[TensorMetadata], list[TensorMetadata]]:
        """Return the inputs and outputs of a model in the Open Inference Protocol."""

    @abstractmethod
    def describe_raw_tensor(self, version: LoadedVersion) -> RawTensor:
        """Return the tensor of a body that is nothing but the bytes of one; reject a model of several."""

    @abstractmethod
    def parse_tensors(self, tensors: InferenceTensors, version: LoadedVersion) -> Any:
        """Return the content of a request of the Open Inference Protocol."""

    @abstractmethod
    def output_tensors(self, output: Any) -> dict[str, AnyArray]:
        """Return the outputs in the Open Inference Protocol."""


def run_engine(
    version: LoadedVersion, inputs: Sequence[Tensor], requests: Sequence[InferenceRequest]
) -> tuple[Tensor, ...]:
    """Return the outputs of a version's engine for a batch, or of its last part for a request that has come so far."""
    if len(requests) == 1 and requests[0].part_outputs:
        return version.engine_parts[-1](*requests[0].part_outputs)
    return version.bundle.run_engine(*inputs)


def parse_json_field(request: Request, body: bytes, name: str, example: str) -> Any:
    """Return one field of a JSON body; reject a body without it, or of another content type."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in JSON_CONTENT_TYPES:
        raise content_type_is_not_json(kind)
    content = parse_json_object(body)
    if name not in content:
        raise RequestRejected(400, f"the JSON must be {example}, and has no {name!r}")
    return content[name]


def require_tensors(tensors: InferenceTensors, expected: Sequence[TensorMetadata]) -> list[AnyArray]:
    """Return the arrays of a request in the order of the inputs that a model takes; reject any others."""
    names = [tensor.name for tensor in expected]
    if tensors.inputs.keys() != set(names):
        given = ", ".join(tensors.inputs)[:120]
        raise RequestRejected(400, f"the inputs must be {' and '.join(names)}, got {given}")
    arrays = [tensors.inputs[name] for name in names]
    for tensor, array in zip(expected, arrays, strict=True):
        fits = array.ndim == len(tensor.shape) and all(
            size in (-1, actual) for size, actual in zip(tensor.shape, array.shape, strict=True)
        )
        if datatype_name(array) != tensor.datatype or not fits or not array.size:
            got = f"{datatype_name(array)} {list(array.shape)}"
            raise RequestRejected(400, f"{tensor.name} must be {tensor.datatype} {tensor.shape}, got {got}")
    if len({len(array) for array in arrays}) > 1:
        raise RequestRejected(400, f"the inputs {' and '.join(names)} hold different numbers of examples")
    return arrays


def repeat_sources(requests: Sequence[InferenceRequest], counts: Sequence[int]) -> list[str | None]:
    """Return the source of each example, given the number of examples of each request."""
    return [request.source for request, count in zip(requests, counts, strict=True) for _ in range(count)]


def encode_strings(texts: Sequence[str]) -> AnyArray:
    """Return texts as an array of byte strings."""
    return np.array([*(text.encode() for text in texts), None], object)[:-1]
