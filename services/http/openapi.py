"""Description of the HTTP API: as an OpenAPI 3.1 document and as an HTML page."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from html import escape
from typing import Any

import msgspec

from equipoise.captures.capture import CAPTURE_POOLS, CaptureMetadata
from equipoise.drift.diagnosis.verdict import StreamVerdict
from equipoise.type_aliases import JsonObject
from equipoise.version import find_version
from services.http.errors import REJECTION_DESCRIPTIONS
from services.http.message_types import (
    BinaryText,
    CaptureListReply,
    ChartHistoryReply,
    ComparisonReply,
    ErrorReply,
    EventsReply,
    ImageBody,
    ImageForm,
    InferenceBody,
    InferenceReply,
    LabelBody,
    LabelCountReply,
    LivenessReply,
    ModelConfigReply,
    ModelMetadata,
    ModelReadinessReply,
    ModelsReply,
    NumberReply,
    PredictionReply,
    ReadinessReply,
    RepositoryEntry,
    ResetReply,
    RowBody,
    ServerMetadata,
    TextBody,
    TextReply,
)
from services.limits import DEFAULT_LISTED_CAPTURES, MAX_LISTED_CAPTURES, Limits

JSON = "application/json"
IMAGE_FILES = {f"image/{kind}": BinaryText for kind in ("png", "jpeg", "webp")}
EXAMPLE_CONTENT = IMAGE_FILES | {"multipart/form-data": ImageForm, JSON: (ImageBody, RowBody, TextBody)}
PREDICTION_TEXT = "the label and the scores of all classes; a number with its interval; or the next characters"
PREDICTION_REPLIES = PredictionReply, NumberReply, TextReply


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
        NumberReply,
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
        RowBody,
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
        TextBody,
        TextReply,
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


@cache  # takes 10 ms, in which no request would be answered
def build_schemas() -> tuple[dict[Any, JsonObject], JsonObject]:
    """Return the schema of each type of body, and the named schemas that these refer to."""
    kinds: dict[Any, None] = {ErrorReply: None}
    for operation in OPERATIONS.values():
        for kind in (operation.reply, *operation.body.values()):
            kinds |= dict.fromkeys(list_types(kind))
    schemas, components = msgspec.json.schema_components([*kinds], ref_template="#/components/schemas/{name}")
    return dict(zip(kinds, schemas, strict=True)), components


def list_types(kind: Any) -> tuple[Any, ...]:
    """Return the types that a body may have."""
    return kind if isinstance(kind, tuple) else (kind,)


def find_schema(kind: Any, schema_by_type: Mapping[Any, JsonObject]) -> JsonObject:
    """Return the schema of a body of a type, or of one of several."""
    schemas = [schema_by_type[body_type] for body_type in list_types(kind)]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def build_openapi_document(requires_key: bool, limits: Limits, model_names: list[str]) -> JsonObject:
    """Build the OpenAPI document of a service with these models and limits."""
    schema_by_type, components = build_schemas()
    paths: JsonObject = {}
    for endpoint, operation in OPERATIONS.items():
        method, path = endpoint.split()
        parameters = describe_parameters(path, operation.query, model_names)
        description = describe_operation(operation, schema_by_type) | ({"parameters": parameters} if parameters else {})
        paths.setdefault(path, {})[method.lower()] = description
    document: JsonObject = {
        "openapi": "3.1.0",
        "info": {
            "title": "Equipoise",
            "version": find_version(),
            "description": "Images, rows of tables or texts in, predictions out."
            f" A request may have {limits.body_bytes} bytes, an image {limits.pixels} pixels.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }
    if requires_key:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
    return document


def describe_operation(operation: ApiOperation, schema_by_type: Mapping[Any, JsonObject]) -> JsonObject:
    """Describe the summary, body and replies of an operation."""
    body = {media_type: {"schema": find_schema(kind, schema_by_type)} for media_type, kind in operation.body.items()}
    error_content = {JSON: {"schema": schema_by_type[ErrorReply]}}
    responses: JsonObject = {
        "200": {
            "description": operation.returns,
            "content": {operation.media_type: {"schema": find_schema(operation.reply, schema_by_type)}},
        }
    }
    for status in REJECTION_DESCRIPTIONS if body else operation.rejections:
        responses[str(status)] = {"description": REJECTION_DESCRIPTIONS[status], "content": error_content}
    request = {"requestBody": {"required": True, "content": body}} if body else {}
    return {"summary": operation.summary} | request | {"responses": responses}


def describe_parameters(path: str, query: tuple[str, ...], model_names: list[str]) -> list[JsonObject]:
    """Describe the parameters in the path and the query of an operation."""
    model_name: JsonObject = {"type": "string", "enum": model_names}
    schemas: JsonObject = {
        "name": model_name,
        "model": model_name,
        "id": {"type": "string"},
        "pool": {"type": "string", "enum": list(CAPTURE_POOLS)},
        "limit": {"type": "integer", "minimum": 0, "maximum": MAX_LISTED_CAPTURES, "default": DEFAULT_LISTED_CAPTURES},
    }
    in_path = [name for name in schemas if f"{{{name}}}" in path]
    return [{"name": name, "in": "path", "required": True, "schema": schemas[name]} for name in in_path] + [
        {"name": name, "in": "query", "schema": schemas[name]} for name in query
    ]


def render_docs_page(document: JsonObject) -> str:
    """Render the OpenAPI document as an HTML page that needs no network."""
    rows = [
        f"<tr><td><code>{verb.upper()} {escape(path)}</code></td><td>{escape(operation['summary'])}</td>"
        f"<td>{escape(', '.join(operation.get('requestBody', {}).get('content', {})))}</td></tr>"
        for path, operations in document["paths"].items()
        for verb, operation in operations.items()
    ]
    style = "body{font:16px system-ui;margin:2em auto;max-width:60em;padding:0 1em}td{padding:.3em .8em .3em 0}"
    head = "<meta charset=utf-8><meta name=viewport content='width=device-width'><title>Equipoise</title>"
    body = (
        f"<h1>Equipoise</h1><p>{escape(document['info']['description'])} As an OpenAPI document: "
        f"<a href=/openapi.json>openapi.json</a>.</p><table>{''.join(rows)}</table>"
    )
    return f"<!doctype html><html lang=en>{head}<style>{style}</style>{body}</html>"
