"""What the service answers, for machines (OpenAPI 3.1) and for people."""

from html import escape
from importlib.metadata import version
from typing import Any

from services.http.errors import REFUSALS
from services.limits import Limits

Facts = dict[str, Any]

ERROR: Facts = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
PREDICTION: Facts = {
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
TENSOR: Facts = {
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
INFERENCE: Facts = {
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
ANY: Facts = {"type": "object"}
PICTURE: Facts = {
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
LABEL: Facts = {
    "application/json": {
        "schema": {"type": "object", "required": ["label"], "properties": {"label": {"type": "string"}}}
    }
}
TABLE: Facts = {"text/csv": {"schema": {"type": "string"}}}


def document(keys: bool, limits: Limits, models: list[str]) -> Facts:
    """The OpenAPI document."""
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "enum": models}}
    kept = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    query = {"name": "model", "in": "query", "schema": {"type": "string", "enum": models}}
    tensors = {"application/json": {"schema": {"$ref": "#/components/schemas/Inference"}}}
    model = "/v2/models/{name}"
    paths: Facts = {
        "/predict": {"post": posted("The label of one picture, by the only model there is", PICTURE, "Prediction")},
        "/models/{name}/predict": {"post": posted("The label of one picture", PICTURE, "Prediction", name)},
        "/models": {"get": got("Every model, and which bundles answer for it")},
        "/models/{name}/compared": {
            "get": got("How far a canary or a shadow agrees with the bundle that answers", 404, name=name)
        },
        "/drift": {
            "get": got("Whether requests still look like the reference, and what changed", 404, 503, name=query)
        },
        "/drift/history": {"get": got("Alarms, restarts and resets", 404, 503, name=query)},
        "/drift/charts": {"get": got("How high each chart was, step by step", 404, 503, name=query)},
        "/drift/reset": {
            "post": got("Begin the charts anew, once a change is known or put right", 403, 404, 503, name=query)
        },
        "/capture": {"get": got("Requests kept for labelling, the most useful first", 400, 404, 503)},
        "/capture/{id}": {"get": got("The picture of one of them", 404, 503, kind="image/png", name=kept)},
        "/capture/{id}/label": {"post": posted("What it really shows", LABEL, "Any", kept)},
        "/capture/labels": {"post": posted("Many labels: a table with the columns id and label", TABLE, "Any")},
        "/": {"get": got("A page that shows how the service does, and stays up to date", kind="text/html")},
        "/live": {"get": got("What is new on that page")},
        "/health": {"get": got("The process answers")},
        "/ready": {"get": got("There is a model that answers", 503)},
        "/metrics": {"get": got("Counts, for Prometheus", kind="text/plain")},
        "/v2": {"get": got("Open Inference Protocol: the server")},
        "/v2/health/live": {"get": got("Open Inference Protocol: the process answers")},
        "/v2/health/ready": {"get": got("Open Inference Protocol: there is a model that answers", 503)},
        "/v2/repository/index": {"post": got("Open Inference Protocol: all models")},
        model: {"get": got("Open Inference Protocol: a model's inputs and outputs", 404, name=name)},
        f"{model}/ready": {"get": got("Open Inference Protocol: a model answers", 404, name=name)},
        f"{model}/config": {"get": got("Open Inference Protocol: a model's configuration", 404, name=name)},
        f"{model}/infer": {
            "post": posted("Open Inference Protocol: tensors in, tensors out", tensors, "Outputs", name)
        },
    }
    facts: Facts = {
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
                "Error": ERROR,
                "Prediction": PREDICTION,
                "Tensor": TENSOR,
                "Inference": INFERENCE,
                "Outputs": ANY,
                "Any": ANY,
            }
        },
    }
    if keys:
        facts["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        facts["security"] = [{"key": []}]
    return facts


def got(summary: str, *errors: int, kind: str = "application/json", name: Facts | None = None) -> Facts:
    """A request without a body."""
    schema = ANY if kind == "application/json" else {"type": "string"}
    if "all models" in summary:
        schema = {"type": "array"}
    return {
        "summary": summary,
        "responses": {"200": {"description": "so it is", "content": {kind: {"schema": schema}}}, **refusals(*errors)},
    } | named(name)


def posted(summary: str, content: Facts, schema: str, name: Facts | None = None) -> Facts:
    """A request with a body."""
    reply = {
        "description": "the answer",
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
    }
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": content},
        "responses": {"200": reply, **refusals(*REFUSALS)},
    } | named(name)


def named(name: Facts | None) -> Facts:
    """The parameter of a path."""
    return {"parameters": [name]} if name else {}


def refusals(*statuses: int) -> Facts:
    """Replies that say why there is no answer."""
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {str(status): {"description": REFUSALS[status], "content": content} for status in statuses}


def page(facts: Facts) -> str:
    """The same as a page that needs no network."""
    rows = [
        f"<tr><td><code>{verb.upper()} {escape(path)}</code></td><td>{escape(call['summary'])}</td>"
        f"<td>{escape(', '.join(call.get('requestBody', {}).get('content', {})))}</td></tr>"
        for path, calls in facts["paths"].items()
        for verb, call in calls.items()
    ]
    style = "body{font:16px system-ui;margin:2em auto;max-width:60em;padding:0 1em}td{padding:.3em .8em .3em 0}"
    head = "<meta charset=utf-8><meta name=viewport content='width=device-width'><title>Equipoise</title>"
    body = (
        f"<h1>Equipoise</h1><p>{escape(facts['info']['description'])} The same for machines: "
        f"<a href=/openapi.json>openapi.json</a>.</p><table>{''.join(rows)}</table>"
    )
    return f"<!doctype html><html lang=en>{head}<style>{style}</style>{body}</html>"
