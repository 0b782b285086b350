"""Bodies of requests and replies as types, from which the OpenAPI document derives its schemas."""

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from dashboards.model_status import ModelStatus
from equipoise.captures.capture import CaptureMetadata
from equipoise.drift.diagnosis.verdict import ChartHistory
from equipoise.type_aliases import JsonObject


@dataclass(frozen=True, kw_only=True)
class ErrorReply:
    """Reason why a request was rejected, in one sentence."""

    error: Annotated[str, Meta(description="what is wrong with the request, and what to send instead")]


@dataclass(frozen=True, kw_only=True)
class InputTensor:
    """Tensor in a request of the Open Inference Protocol."""

    name: Annotated[str, Meta(description="name of an input of the model")]
    datatype: Annotated[
        str, Meta(description="UINT8 for images, BYTES for encoded image files, FP32 and INT64 for rows and texts")
    ]
    shape: Annotated[list[int], Meta(description="size of each dimension; the first is the number of examples")]
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
    inputs: Annotated[list[InputTensor], Meta(min_length=1, description="the inputs that the model takes")]
    outputs: Annotated[
        list[RequestedOutput] | UnsetType, Meta(description="outputs to return; all of them if left out")
    ] = UNSET


@dataclass(frozen=True, kw_only=True)
class CaptureListReply:
    """Requests kept for labelling, and why the last one could not be kept, if so."""

    captures: Annotated[list[CaptureMetadata], Meta(description="captures, the most useful to label first")]
    trouble: Annotated[
        str | None, Meta(description="why requests are not kept, or why the last one could not be kept; null if it was")
    ]


@dataclass(frozen=True, kw_only=True)
class LabelBody:
    """True label of one capture."""

    label: Annotated[str, Meta(description="name of a class of the model")]


@dataclass(frozen=True, kw_only=True)
class LabelCountReply:
    """Number of captures that a table has labelled."""

    labelled: Annotated[int, Meta(description="captures that got a label")]


@dataclass(frozen=True, kw_only=True)
class LivenessReply:
    """Sign that the process answers."""

    live: Annotated[bool, Meta(description="true: the process answers")]


@dataclass(frozen=True, kw_only=True)
class ReadinessReply:
    """Whether a model is loaded and the replica is not about to stop."""

    ready: Annotated[bool, Meta(description="whether requests may be sent here")]


@dataclass(frozen=True, kw_only=True)
class ModelsReply:
    """Models of a service, and why the last change of its bundles failed, if so."""

    models: Annotated[list[ModelStatus], Meta(description="models of the service")]
    not_loaded: Annotated[str | None, Meta(description="why the bundles given last could not be loaded, or null")]


@dataclass(frozen=True, kw_only=True)
class Proportion:
    """Proportion with its 95 % interval."""

    value: Annotated[float, Meta(description="estimate")]
    low: Annotated[float, Meta(description="lower end of the interval")]
    high: Annotated[float, Meta(description="upper end of the interval")]


@dataclass(frozen=True, kw_only=True)
class ComparisonReply:
    """How far a canary or shadow agrees with the current version on the same images."""

    model: Annotated[str, Meta(description="name of the model")]
    version: Annotated[str, Meta(description="current version")]
    other: Annotated[str, Meta(description="version of the canary or shadow")]
    pictures: Annotated[int, Meta(description="number of images that both versions computed")]
    same: Annotated[Proportion | None, Meta(description="images with the same label; null before the first image")]
    distance: Annotated[float | None, Meta(description="mean total variation distance of the scores")]
    differs: Annotated[dict[str, int], Meta(description="images with another label, by label of the current version")]


@dataclass(frozen=True, kw_only=True)
class EventsReply:
    """Alarms, restarts and resets of a model's drift charts, the latest last."""

    model: Annotated[str, Meta(description="name of the model")]
    version: Annotated[str, Meta(description="version of its current bundle")]
    events: Annotated[
        list[dict[str, Any]], Meta(description="each has event, stream and time; an alarm has the verdict's keys too")
    ]


class ChartHistoryReply(ChartHistory, frozen=True, kw_only=True):
    """Height of each drift chart of a model after each step."""

    model: Annotated[str, Meta(description="name of the model")]
    version: Annotated[str, Meta(description="version of its current bundle")]


@dataclass(frozen=True, kw_only=True)
class ResetReply:
    """Confirmation that the drift charts of a model start anew."""

    model: Annotated[str, Meta(description="name of the model")]
    version: Annotated[str, Meta(description="version of its current bundle")]
    reset: Annotated[bool, Meta(description="true: the charts start anew")]


@dataclass(frozen=True, kw_only=True)
class ServerMetadata:
    """Server metadata of the Open Inference Protocol."""

    name: Annotated[str, Meta(description="`equipoise`")]
    version: Annotated[str, Meta(description="version of this API")]
    extensions: Annotated[list[str], Meta(description="extensions of the protocol that the server has")]


@dataclass(frozen=True, kw_only=True)
class RepositoryEntry:
    """Model in the list of the Open Inference Protocol."""

    name: Annotated[str, Meta(description="name of the model")]
    version: Annotated[str, Meta(description="version of its current bundle")]
    state: Annotated[str, Meta(description="`READY`")]
    reason: Annotated[str, Meta(description="empty")]


@dataclass(frozen=True, kw_only=True)
class TensorMetadata:
    """Input or output of a model; -1 in the shape is the number of examples."""

    name: Annotated[str, Meta(description="name of the input or output")]
    datatype: Annotated[str, Meta(description="type of its values")]
    shape: Annotated[list[int], Meta(description="size of each dimension")]


@dataclass(frozen=True, kw_only=True)
class ModelMetadata:
    """Inputs and outputs of a model in the Open Inference Protocol."""

    name: Annotated[str, Meta(description="name of the model")]
    versions: Annotated[list[str], Meta(description="version of its current bundle")]
    platform: Annotated[str, Meta(description="`equipoise`")]
    inputs: Annotated[
        list[TensorMetadata], Meta(description="inputs; of those of a model of images, a request has one")
    ]
    outputs: Annotated[list[TensorMetadata], Meta(description="outputs of a reply")]


@dataclass(frozen=True, kw_only=True)
class ModelReadinessReply:
    """Sign that a model of the Open Inference Protocol answers."""

    name: Annotated[str, Meta(description="name of the model")]
    ready: Annotated[bool, Meta(description="true: it answers")]


@dataclass(frozen=True, kw_only=True)
class ModelConfigReply:
    """Engine and largest batch size of a model of the Open Inference Protocol."""

    name: Annotated[str, Meta(description="name of the model")]
    platform: Annotated[str, Meta(description="`equipoise`")]
    backend: Annotated[str, Meta(description="engine that computes")]
    max_batch_size: Annotated[int, Meta(description="examples that one request may hold")]


@dataclass(frozen=True, kw_only=True)
class OutputTensor:
    """Tensor in a reply of the Open Inference Protocol; binary data follow the JSON instead of `data`."""

    name: Annotated[str, Meta(description="name of the output")]
    datatype: Annotated[str, Meta(description="BYTES for labels, FP32 for scores and boxes, FP64 for numbers")]
    shape: Annotated[list[int], Meta(description="size of each dimension; the first is the number of examples")]
    data: Annotated[list[Any] | UnsetType, Meta(description="values, flat; left out for binary data")] = UNSET
    parameters: Annotated[
        JsonObject | UnsetType, Meta(description="`binary_data_size`: bytes of this tensor after the JSON")
    ] = UNSET


@dataclass(frozen=True, kw_only=True)
class InferenceReply:
    """Reply of the Open Inference Protocol, as `tensor_codec` builds it."""

    model_name: Annotated[str, Meta(description="name of the model")]
    model_version: Annotated[str, Meta(description="version of the bundle that answered")]
    id: Annotated[str | UnsetType, Meta(description="id of the request, if it had one")] = UNSET
    parameters: Annotated[JsonObject | UnsetType, Meta(description="parameters of the reply, if any")] = UNSET
    outputs: Annotated[list[OutputTensor], Meta(description="outputs of the model")]
