"""What the service answers, for machines (OpenAPI 3.1) and for people."""

from html import escape
from importlib.metadata import version

from equipoise.type_aliases import JsonObject
from services.http.errors import REJECTION_DESCRIPTIONS
from services.limits import Limits

ERROR_SCHEMA: JsonObject = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
PREDICTION_SCHEMA: JsonObject = {
    "type": "object",
    "required": ["model", "version", "id", "label", "score", "scores"],
    "properties": {
        "model": {"type": "string"},
        "version": {"type": "string", "description": "of the bundle that answered"},
        "id": {"type": "string", "description": "the request's: its x-request-id, or one made for it"},
        "label": {"type": "string"},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "scores": {"type": "object", "additionalProperties": {"type": "number"}},
    },
}
TENSOR_SCHEMA: JsonObject = {
    "type": "object",
    "required": ["name", "datatype", "shape"],
    "properties": {
        "name": {"type": "string"},
        "datatype": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer"}},
        "data": {"type": "array"},
        "parameters": {"type": "object"},
    },
}
INFERENCE_SCHEMA: JsonObject = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": {"type": "string"},
        "parameters": {"type": "object"},
        "inputs": {"type": "array", "items": {"$ref": "#/components/schemas/Tensor"}, "minItems": 1},
        "outputs": {
            "type": "array",
            "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
        },
    },
}
ANY_OBJECT_SCHEMA: JsonObject = {"type": "object"}
IMAGE_CONTENT: JsonObject = {
    **{f"image/{kind}": {"schema": {"type": "string", "format": "binary"}} for kind in ("png", "jpeg", "webp")},
    "multipart/form-data": {
        "schema": {"type": "object", "properties": {"image": {"type": "string", "format": "binary"}}}
    },
    "application/json": {
        "schema": {
            "type": "object",
            "required": ["image"],
            "properties": {"image": {"type": "string", "format": "byte"}},
        }
    },
}
LABEL_CONTENT: JsonObject = {
    "application/json": {
        "schema": {"type": "object", "required": ["label"], "properties": {"label": {"type": "string"}}}
    }
}
CSV_CONTENT: JsonObject = {"text/csv": {"schema": {"type": "string"}}}


def build_openapi_document(requires_key: bool, limits: Limits, model_names: list[str]) -> JsonObject:
    """The OpenAPI document."""
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "enum": model_names}}
    kept = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    query = {"name": "model", "in": "query", "schema": {"type": "string", "enum": model_names}}
    tensors = {"application/json": {"schema": {"$ref": "#/components/schemas/Inference"}}}
    model = "/v2/models/{name}"
    paths: JsonObject = {
        "/predict": {
            "post": describe_post("The label of one picture, by the only model there is", IMAGE_CONTENT, "Prediction")
        },
        "/models/{name}/predict": {
            "post": describe_post("The label of one picture", IMAGE_CONTENT, "Prediction", name)
        },
        "/models": {"get": describe_get("Every model, and which bundles answer for it")},
        "/models/{name}/compared": {
            "get": describe_get("How far a canary or a shadow agrees with the bundle that answers", 404, parameter=name)
        },
        "/drift": {
            "get": describe_get(
                "Whether requests still look like the reference, and what changed", 404, 503, parameter=query
            )
        },
        "/drift/history": {"get": describe_get("Alarms, restarts and resets", 404, 503, parameter=query)},
        "/drift/charts": {"get": describe_get("How high each chart was, step by step", 404, 503, parameter=query)},
        "/drift/reset": {
            "post": describe_get(
                "Begin the charts anew, once a change is known or put right", 403, 404, 503, parameter=query
            )
        },
        "/capture": {"get": describe_get("Requests kept for labelling, the most useful first", 400, 404, 503)},
        "/capture/{id}": {
            "get": describe_get("The picture of one of them", 404, 503, content_type="image/png", parameter=kept)
        },
        "/capture/{id}/label": {"post": describe_post("What it really shows", LABEL_CONTENT, "Any", kept)},
        "/capture/labels": {
            "post": describe_post("Many labels: a table with the columns id and label", CSV_CONTENT, "Any")
        },
        "/": {
            "get": describe_get(
                "A page that shows how the service does, and stays up to date", content_type="text/html"
            )
        },
        "/live": {"get": describe_get("What is new on that page")},
        "/health": {"get": describe_get("The process answers")},
        "/ready": {"get": describe_get("There is a model that answers", 503)},
        "/metrics": {"get": describe_get("Counts, for Prometheus", content_type="text/plain")},
        "/v2": {"get": describe_get("Open Inference Protocol: the server")},
        "/v2/health/live": {"get": describe_get("Open Inference Protocol: the process answers")},
        "/v2/health/ready": {"get": describe_get("Open Inference Protocol: there is a model that answers", 503)},
        "/v2/repository/index": {"post": describe_get("Open Inference Protocol: all models")},
        model: {"get": describe_get("Open Inference Protocol: a model's inputs and outputs", 404, parameter=name)},
        f"{model}/ready": {"get": describe_get("Open Inference Protocol: a model answers", 404, parameter=name)},
        f"{model}/config": {
            "get": describe_get("Open Inference Protocol: a model's configuration", 404, parameter=name)
        },
        f"{model}/infer": {
            "post": describe_post("Open Inference Protocol: tensors in, tensors out", tensors, "Outputs", name)
        },
    }
    facts: JsonObject = {
        "openapi": "3.1.0",
        "info": {
            "title": "Equipoise",
            "version": version("equipoise"),
            "description": "Pictures in, labels out."
            f" A request may have {limits.body_bytes} bytes, a picture {limits.pixels} pixels.",
        },
        "paths": paths,
        "components": {
            "schemas": {
                "Error": ERROR_SCHEMA,
                "Prediction": PREDICTION_SCHEMA,
                "Tensor": TENSOR_SCHEMA,
                "Inference": INFERENCE_SCHEMA,
                "Outputs": ANY_OBJECT_SCHEMA,
                "Any": ANY_OBJECT_SCHEMA,
            }
        },
    }
    if requires_key:
        facts["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        facts["security"] = [{"key": []}]
    return facts


def describe_get(
    summary: str, *error_statuses: int, content_type: str = "application/json", parameter: JsonObject | None = None
) -> JsonObject:
    """A request without a body."""
    schema = ANY_OBJECT_SCHEMA if content_type == "application/json" else {"type": "string"}
    if "all models" in summary:
        schema = {"type": "array"}
    return {
        "summary": summary,
        "responses": {
            "200": {"description": "so it is", "content": {content_type: {"schema": schema}}},
            **error_responses(*error_statuses),
        },
    } | parameters_entry(parameter)


def describe_post(
    summary: str, content: JsonObject, response_schema: str, parameter: JsonObject | None = None
) -> JsonObject:
    """A request with a body."""
    reply = {
        "description": "the answer",
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{response_schema}"}}},
    }
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": content},
        "responses": {"200": reply, **error_responses(*REJECTION_DESCRIPTIONS)},
    } | parameters_entry(parameter)


def parameters_entry(parameter: JsonObject | None) -> JsonObject:
    """The parameter of a path."""
    return {"parameters": [parameter]} if parameter else {}


def error_responses(*statuses: int) -> JsonObject:
    """Replies that say why there is no answer."""
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {str(status): {"description": REJECTION_DESCRIPTIONS[status], "content": content} for status in statuses}


def render_docs_page(document: JsonObject) -> str:
    """The same as a page that needs no network."""
    rows = [
        f"<tr><td><code>{verb.upper()} {escape(path)}</code></td><td>{escape(call['summary'])}</td>"
        f"<td>{escape(', '.join(call.get('requestBody', {}).get('content', {})))}</td></tr>"
        for path, calls in document["paths"].items()
        for verb, call in calls.items()
    ]
    style = "body{font:16px system-ui;margin:2em auto;max-width:60em;padding:0 1em}td{padding:.3em .8em .3em 0}"
    head = "<meta charset=utf-8><meta name=viewport content='width=device-width'><title>Equipoise</title>"
    body = (
        f"<h1>Equipoise</h1><p>{escape(document['info']['description'])} The same for machines: "
        f"<a href=/openapi.json>openapi.json</a>.</p><table>{''.join(rows)}</table>"
    )
    return f"<!doctype html><html lang=en>{head}<style>{style}</style>{body}</html>"
