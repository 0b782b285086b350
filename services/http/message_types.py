"""Bodies of requests and replies as types, from which the OpenAPI document derives its schemas."""

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from dashboards.model_status import ModelStatus
from equipoise.captures.capture import CaptureMetadata
from equipoise.drift.diagnosis.verdict import ChartHistory
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


@dataclass(frozen=True, kw_only=True)
class LivenessReply:
    """Sign that the process answers."""

    live: bool


@dataclass(frozen=True, kw_only=True)
class ReadinessReply:
    """Whether a model is loaded and the replica is not about to stop."""

    ready: bool


@dataclass(frozen=True, kw_only=True)
class ModelsReply:
    """Models of a service, and why the last change of its bundles failed, if so."""

    models: list[ModelStatus]
    not_loaded: str | None


@dataclass(frozen=True, kw_only=True)
class Proportion:
    """Proportion with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class ComparisonReply:
    """How far a canary or shadow agrees with the current version on the same images."""

    model: str
    version: str
    other: Annotated[str, Meta(description="version of the canary or shadow")]
    pictures: Annotated[int, Meta(description="number of images that both versions computed")]
    same: Annotated[Proportion | None, Meta(description="images with the same label; null before the first image")]
    distance: Annotated[float | None, Meta(description="mean total variation distance of the scores")]
    differs: Annotated[dict[str, int], Meta(description="images with another label, by label of the current version")]


@dataclass(frozen=True, kw_only=True)
class EventsReply:
    """Alarms, restarts and resets of a model's drift charts, the latest last."""

    model: str
    version: str
    events: Annotated[
        list[dict[str, Any]], Meta(description="each has event, stream and time; an alarm has the verdict's keys too")
    ]


class ChartHistoryReply(ChartHistory, frozen=True, kw_only=True):
    """Height of each drift chart of a model after each step."""

    model: str
    version: str


@dataclass(frozen=True, kw_only=True)
class ResetReply:
    """Confirmation that the drift charts of a model start anew."""

    model: str
    version: str
    reset: bool


@dataclass(frozen=True, kw_only=True)
class ServerMetadata:
    """Server metadata of the Open Inference Protocol."""

    name: str
    version: str
    extensions: list[str]


@dataclass(frozen=True, kw_only=True)
class RepositoryEntry:
    """Model in the list of the Open Inference Protocol."""

    name: str
    version: str
    state: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class TensorMetadata:
    """Input or output of a model; -1 in the shape is the number of images."""

    name: str
    datatype: str
    shape: list[int]


@dataclass(frozen=True, kw_only=True)
class ModelMetadata:
    """Inputs and outputs of a model in the Open Inference Protocol."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


@dataclass(frozen=True, kw_only=True)
class ModelReadinessReply:
    """Sign that a model of the Open Inference Protocol answers."""

    name: str
    ready: bool


@dataclass(frozen=True, kw_only=True)
class ModelConfigReply:
    """Engine and largest batch size of a model of the Open Inference Protocol."""

    name: str
    platform: str
    backend: str
    max_batch_size: int


@dataclass(frozen=True, kw_only=True)
class OutputTensor:
    """Tensor in a reply of the Open Inference Protocol; binary data follow the JSON instead of `data`."""

    name: str
    datatype: str
    shape: list[int]
    data: list[Any] | UnsetType = UNSET
    parameters: JsonObject | UnsetType = UNSET


@dataclass(frozen=True, kw_only=True)
class InferenceReply:
    """Reply of the Open Inference Protocol, as `tensor_codec` builds it."""

    model_name: str
    model_version: str
    id: str | UnsetType = UNSET
    parameters: JsonObject | UnsetType = UNSET
    outputs: list[OutputTensor]
