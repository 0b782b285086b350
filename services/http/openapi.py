"""Description of the HTTP API: as an OpenAPI 3.1 document and as an HTML page."""

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
        "version": {"type": "string", "description": "version of the bundle that answered"},
        "id": {"type": "string", "description": "id of the request: its x-request-id, or a generated one"},
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
    """Build the OpenAPI document of a service with these models and limits."""
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "enum": model_names}}
    capture = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    query = {"name": "model", "in": "query", "schema": {"type": "string", "enum": model_names}}
    tensors = {"application/json": {"schema": {"$ref": "#/components/schemas/Inference"}}}
    model = "/v2/models/{name}"
    paths: JsonObject = {
        "/predict": {
            "post": describe_post(
                "Predict the label of one image, if a single model is served", IMAGE_CONTENT, "Prediction"
            )
        },
        "/models/{name}/predict": {
            "post": describe_post("Predict the label of one image", IMAGE_CONTENT, "Prediction", name)
        },
        "/models": {"get": describe_get("List every model and the bundles that answer for it")},
        "/models/{name}/compared": {
            "get": describe_get("Compare a canary or shadow version with the current version", 404, parameter=name)
        },
        "/drift": {
            "get": describe_get(
                "Return the drift verdict: whether requests still look like the reference, and what changed",
                404,
                503,
                parameter=query,
            )
        },
        "/drift/history": {"get": describe_get("List alarms, restarts and resets", 404, 503, parameter=query)},
        "/drift/charts": {"get": describe_get("Return the history of each drift chart", 404, 503, parameter=query)},
        "/drift/reset": {
            "post": describe_get(
                "Reset the drift charts, once a change is known or fixed", 403, 404, 503, parameter=query
            )
        },
        "/capture": {"get": describe_get("List requests kept for labelling, the most useful first", 400, 404, 503)},
        "/capture/{id}": {
            "get": describe_get(
                "Return the image of one capture", 404, 503, content_type="image/png", parameter=capture
            )
        },
        "/capture/{id}/label": {
            "post": describe_post("Set the true label of one capture", LABEL_CONTENT, "Any", capture)
        },
        "/capture/labels": {
            "post": describe_post(
                "Set the labels of many captures, from a CSV with the columns id and label", CSV_CONTENT, "Any"
            )
        },
        "/": {"get": describe_get("Show the status page, which updates itself", content_type="text/html")},
        "/live": {"get": describe_get("Return the latest content of the status page")},
        "/health": {"get": describe_get("Return whether the process answers")},
        "/ready": {"get": describe_get("Return whether a model is ready to answer", 503)},
        "/metrics": {"get": describe_get("Return metrics in the Prometheus format", content_type="text/plain")},
        "/v2": {"get": describe_get("Open Inference Protocol: server metadata")},
        "/v2/health/live": {"get": describe_get("Open Inference Protocol: whether the process answers")},
        "/v2/health/ready": {"get": describe_get("Open Inference Protocol: whether a model is ready to answer", 503)},
        "/v2/repository/index": {"post": describe_get("Open Inference Protocol: list all models")},
        model: {"get": describe_get("Open Inference Protocol: a model's inputs and outputs", 404, parameter=name)},
        f"{model}/ready": {
            "get": describe_get("Open Inference Protocol: whether a model answers", 404, parameter=name)
        },
        f"{model}/config": {
            "get": describe_get("Open Inference Protocol: a model's configuration", 404, parameter=name)
        },
        f"{model}/infer": {
            "post": describe_post("Open Inference Protocol: tensors in, tensors out", tensors, "Outputs", name)
        },
    }
    document: JsonObject = {
        "openapi": "3.1.0",
        "info": {
            "title": "Equipoise",
            "version": version("equipoise"),
            "description": "Image classification: images in, labels out."
            f" A request may have {limits.body_bytes} bytes, an image {limits.pixels} pixels.",
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
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
    return document


def describe_get(
    summary: str, *error_statuses: int, content_type: str = "application/json", parameter: JsonObject | None = None
) -> JsonObject:
    """Describe an operation without a request body."""
    schema = ANY_OBJECT_SCHEMA if content_type == "application/json" else {"type": "string"}
    if "all models" in summary:
        schema = {"type": "array"}
    return {
        "summary": summary,
        "responses": {
            "200": {"description": "success", "content": {content_type: {"schema": schema}}},
            **error_responses(*error_statuses),
        },
    } | parameters_entry(parameter)


def describe_post(
    summary: str, content: JsonObject, response_schema: str, parameter: JsonObject | None = None
) -> JsonObject:
    """Describe a POST operation with a request body."""
    response = {
        "description": "success",
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{response_schema}"}}},
    }
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": content},
        "responses": {"200": response, **error_responses(*REJECTION_DESCRIPTIONS)},
    } | parameters_entry(parameter)


def parameters_entry(parameter: JsonObject | None) -> JsonObject:
    """Return the `parameters` entry of an operation, empty without a parameter."""
    return {"parameters": [parameter]} if parameter else {}


def error_responses(*statuses: int) -> JsonObject:
    """Return the `responses` entries of rejections with these statuses."""
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {str(status): {"description": REJECTION_DESCRIPTIONS[status], "content": content} for status in statuses}


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
