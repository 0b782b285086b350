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

    error: Annotated[str, Meta(description="what is wrong with the request, and what to send instead")]


@dataclass(frozen=True, kw_only=True)
class ImageForm:
    """One image file in a form."""

    image: Annotated[BinaryText, Meta(description="PNG, JPEG or WebP; the field may have any name")]


@dataclass(frozen=True, kw_only=True)
class ImageBody:
    """One image file in JSON."""

    image: Annotated[Base64Text, Meta(description="PNG, JPEG or WebP in base64")]


@dataclass(frozen=True, kw_only=True)
class PredictionReply:
    """Predicted label and calibrated scores of one image."""

    model: Annotated[str, Meta(description="name of the model")]
    version: Annotated[str, Meta(description="version of the bundle that answered")]
    id: Annotated[str, Meta(description="id of the request: its x-request-id, or a generated one")]
    label: Annotated[str, Meta(description="class with the highest score")]
    score: Annotated[float, Meta(ge=0, le=1, description="calibrated probability of the label")]
    scores: Annotated[dict[str, float], Meta(description="calibrated probability of each class")]


@dataclass(frozen=True, kw_only=True)
class InputTensor:
    """Tensor in a request of the Open Inference Protocol."""

    name: Annotated[str, Meta(description="name of an input of the model")]
    datatype: Annotated[str, Meta(description="UINT8 for images, BYTES for encoded image files")]
    shape: Annotated[list[int], Meta(description="size of each dimension; the first is the number of images")]
    data: Annotated[list[Any] | UnsetType, Meta(description="values, flat or nested; left out for binary data")] = UNSET
    parameters: Annotated[
        JsonObject | UnsetType, Meta(description="`binary_data_size`: bytes of this tensor after the JSON")
    ] = UNSET


@dataclass(frozen=True, kw_only=True)
class RequestedOutput:
    """Output that a request of the Open Inference Protocol asks for."""

    name: Annotated[str, Meta(description="name of an output of the model")]


@dataclass(frozen=True, kw_only=True)
class InferenceBody:
    """Request of the Open Inference Protocol."""

    id: Annotated[str | UnsetType, Meta(description="id that the reply repeats")] = UNSET
    parameters: Annotated[
        JsonObject | UnsetType, Meta(description="`binary_data_output`: true for outputs as binary data")
    ] = UNSET
    inputs: Annotated[list[InputTensor], Meta(min_length=1, description="the one input with the images")]
    outputs: Annotated[
        list[RequestedOutput] | UnsetType, Meta(description="outputs to return; all of them if left out")
    ] = UNSET


@dataclass(frozen=True, kw_only=True)
class CaptureListReply:
    """Requests kept for labelling, and why the last one could not be kept, if so."""

    captures: Annotated[list[CaptureMetadata], Meta(description="captures, the most useful to label first")]
    trouble: Annotated[
        str | None, Meta(description="why the last request to be kept could not be kept; null if it was")
    ]


@dataclass(frozen=True, kw_only=True)
class LabelBody:
    """True label of one capture."""

    label: Annotated[str, Meta(description="name of a class of the model")]


@dataclass(frozen=True, kw_only=True)
class LabelCountReply:
    """Number of captures that a table has labelled."""

    labelled: Annotated[int, Meta(description="captures that got a label")]
