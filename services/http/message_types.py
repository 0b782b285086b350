"""Bodies of requests and replies as types, from which the OpenAPI document derives its schemas."""

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from equipoise.captures.capture import CaptureMetadata
from equipoise.type_aliases import JsonObject

BinaryText = Annotated[str, Meta(extra_json_schema={"format": "binary"})]
Base64Text = Annotated[str, Meta(extra_json_schema={"format": "byte"})]


@dataclass(frozen=True, kw_only=True)
class ErrorReply:
    """Reason why a request was rejected, in one sentence."""

    error: str


@dataclass(frozen=True, kw_only=True)
class ImageForm:
    """One image file in a form."""

    image: BinaryText


@dataclass(frozen=True, kw_only=True)
class ImageBody:
    """One image file in JSON."""

    image: Base64Text


@dataclass(frozen=True, kw_only=True)
class PredictionReply:
    """Predicted label and calibrated scores of one image."""

    model: str
    version: Annotated[str, Meta(description="version of the bundle that answered")]
    id: Annotated[str, Meta(description="id of the request: its x-request-id, or a generated one")]
    label: str
    score: Annotated[float, Meta(ge=0, le=1)]
    scores: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class InputTensor:
    """Tensor in a request of the Open Inference Protocol."""

    name: str
    datatype: str
    shape: list[int]
    data: list[Any] | UnsetType = UNSET
    parameters: JsonObject | UnsetType = UNSET


@dataclass(frozen=True, kw_only=True)
class RequestedOutput:
    """Output that a request of the Open Inference Protocol asks for."""

    name: str


@dataclass(frozen=True, kw_only=True)
class InferenceBody:
    """Request of the Open Inference Protocol, as `tensor_codec` parses it."""

    id: str | UnsetType = UNSET
    parameters: JsonObject | UnsetType = UNSET
    inputs: Annotated[list[InputTensor], Meta(min_length=1)]
    outputs: list[RequestedOutput] | UnsetType = UNSET


@dataclass(frozen=True, kw_only=True)
class CaptureListReply:
    """Requests kept for labelling, and why the last one could not be kept, if so."""

    captures: list[CaptureMetadata]
    trouble: str | None


@dataclass(frozen=True, kw_only=True)
class LabelBody:
    """True label of one capture."""

    label: str


@dataclass(frozen=True, kw_only=True)
class LabelCountReply:
    """Number of captures that a table has labelled."""

    labelled: int
