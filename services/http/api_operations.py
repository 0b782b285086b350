"""Endpoints of the HTTP API: what each takes and returns."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from equipoise.captures.capture import CaptureMetadata
from equipoise.drift.diagnosis.verdict import StreamVerdict
from equipoise.type_aliases import JsonObject
from services.http.message_types import (
    CaptureListReply,
    ChartHistoryReply,
    ComparisonReply,
    EventsReply,
    InferenceBody,
    InferenceReply,
    LabelBody,
    LabelCountReply,
    LivenessReply,
    ModelConfigReply,
    ModelMetadata,
    ModelReadinessReply,
    ModelsReply,
    ReadinessReply,
    RepositoryEntry,
    ResetReply,
    ServerMetadata,
)
from services.http.prediction_types import (
    BinaryText,
    BoxesReply,
    ImageBody,
    ImageForm,
    NumberReply,
    PredictionReply,
    RowBody,
    TextBody,
    TextReply,
)

JSON = "application/json"
IMAGE_FILES = {f"image/{kind}": BinaryText for kind in ("png", "jpeg", "webp")}
EXAMPLE_CONTENT = IMAGE_FILES | {"multipart/form-data": ImageForm, JSON: (ImageBody, RowBody, TextBody)}
PREDICTION_TEXT = (
    "the label and the scores of all classes; a number with its interval; the next characters; or the boxes in an image"
)
PREDICTION_REPLIES = PredictionReply, NumberReply, TextReply, BoxesReply


@dataclass(frozen=True)
class ApiOperation:
    """What one endpoint takes and returns."""

    summary: str
    reply: Any
    """type of the reply to a request that is not rejected, or several of them"""
    returns: str
    """what the reply holds"""
    _: KW_ONLY
    media_type: str = JSON
    """media type of the reply"""
    body: Mapping[str, Any] = field(default_factory=dict)
    """type of the request's body by media type, or several of them; empty if there is none"""
    rejections: tuple[int, ...] = ()
    """statuses with which it may be rejected; any of them if it has a body"""
    query: tuple[str, ...] = ()
    """parameters in the query; those in the path follow from the path"""


OPERATIONS = {
    "POST /predict": ApiOperation(
        "Predict for one image, row or text, if a single model is served",
        PREDICTION_REPLIES,
        PREDICTION_TEXT,
        body=EXAMPLE_CONTENT,
    ),
    "POST /models/{name}/predict": ApiOperation(
        "Predict for one image, row or text, by the kind of the model",
        PREDICTION_REPLIES,
        PREDICTION_TEXT,
        body=EXAMPLE_CONTENT,
    ),
    "GET /models": ApiOperation(
        "List every model and the bundles that answer for it",
        ModelsReply,
        "the models, each with its bundles by role",
    ),
    "GET /models/{name}/compared": ApiOperation(
        "Compare a canary or shadow version with the current version",
        ComparisonReply,
        "how often the two versions gave the same label, and where they differ",
        rejections=(404,),
    ),
    "GET /drift": ApiOperation(
        "Return the drift verdict: whether requests still look like the reference, and what changed",
        StreamVerdict,
        "the verdict, with its cause, charts and the estimated accuracy",
        rejections=(404, 503),
        query=("model",),
    ),
    "GET /drift/history": ApiOperation(
        "List alarms, restarts and resets",
        EventsReply,
        "the events, the latest last",
        rejections=(404, 503),
        query=("model",),
    ),
    "GET /drift/charts": ApiOperation(
        "Return the height of each drift chart by the number of the image, counted from the first one",
        ChartHistoryReply,
        "the heights by chart, and the threshold, image number and time of each step",
        rejections=(404, 503),
        query=("model",),
    ),
    "POST /drift/reset": ApiOperation(
        "Reset the drift charts, once a change is known or fixed",
        ResetReply,
        "the model and version whose charts start anew",
        rejections=(403, 404, 503),
        query=("model",),
    ),
    "GET /capture": ApiOperation(
        "List requests kept for labelling, the most useful first",
        CaptureListReply,
        "the metadata of the captures",
        rejections=(400, 404, 503),
        query=("pool", "limit"),
    ),
    "GET /capture/{id}": ApiOperation(
        "Return the image of one capture",
        BinaryText,
        "the image as the model received it",
        media_type="image/png",
        rejections=(404, 503),
    ),
    "POST /capture/{id}/label": ApiOperation(
        "Set the true label of one capture", CaptureMetadata, "the capture with its label", body={JSON: LabelBody}
    ),
    "POST /capture/labels": ApiOperation(
        "Set the labels of many captures, from a CSV with the columns id and label",
        LabelCountReply,
        "the number of captures that got a label",
        body={"text/csv": str},
    ),
    "GET /": ApiOperation(
        "Show the status page, which updates itself", str, "the page, which needs no network", media_type="text/html"
    ),
    "GET /try": ApiOperation(
        "Show a page on which a model of images answers a picture from a file or the camera",
        str,
        "the page, which needs no network",
        media_type="text/html",
    ),
    "GET /label": ApiOperation(
        "Show the page on which people label the requests that were kept",
        str,
        "the page, at /label/, with its requests below that",
        media_type="text/html",
        rejections=(404,),
    ),
    "GET /live": ApiOperation(
        "Return the latest content of the status page",
        JsonObject,
        "data of the page, which may change between versions",
    ),
    "GET /health": ApiOperation("Return whether the process answers", LivenessReply, "`live`: true"),
    "GET /ready": ApiOperation(
        "Return whether a model is ready to answer", ReadinessReply, "`ready`: true", rejections=(503,)
    ),
    "GET /metrics": ApiOperation(
        "Return metrics in the Prometheus format",
        str,
        "the metrics of all replicas on this machine",
        media_type="text/plain",
    ),
    "GET /v2": ApiOperation(
        "Open Inference Protocol: return name, version and extensions of the server",
        ServerMetadata,
        "name, version of this API, and extensions",
    ),
    "GET /v2/health/live": ApiOperation(
        "Open Inference Protocol: return whether the process answers", LivenessReply, "`live`: true"
    ),
    "GET /v2/health/ready": ApiOperation(
        "Open Inference Protocol: return whether a model is ready to answer",
        ReadinessReply,
        "`ready`: true",
        rejections=(503,),
    ),
    "POST /v2/repository/index": ApiOperation(
        "Open Inference Protocol: list all models", list[RepositoryEntry], "name, version and state of each model"
    ),
    "GET /v2/models/{name}": ApiOperation(
        "Open Inference Protocol: return a model's inputs and outputs",
        ModelMetadata,
        "the inputs and outputs, and the version being served",
        rejections=(404,),
    ),
    "GET /v2/models/{name}/ready": ApiOperation(
        "Open Inference Protocol: return whether a model answers",
        ModelReadinessReply,
        "`ready`: true",
        rejections=(404,),
    ),
    "GET /v2/models/{name}/config": ApiOperation(
        "Open Inference Protocol: return a model's engine and largest batch",
        ModelConfigReply,
        "the engine, and how many examples one request may hold",
        rejections=(404,),
    ),
    "POST /v2/models/{name}/infer": ApiOperation(
        "Open Inference Protocol: predict for a batch of images, rows or texts",
        InferenceReply,
        "the outputs of the model as tensors",
        body={JSON: InferenceBody},
    ),
}
"""operations by method and path"""


def list_types(kind: Any) -> tuple[Any, ...]:
    """Return the types that a body may have."""
    return kind if isinstance(kind, tuple) else (kind,)
