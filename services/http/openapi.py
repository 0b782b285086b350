"""Description of the HTTP API: as an OpenAPI 3.1 document and as an HTML page."""

from collections.abc import Mapping
from functools import cache
from html import escape
from typing import Any

import msgspec

from equipoise.captures.capture import CAPTURE_POOLS
from equipoise.type_aliases import JsonObject
from equipoise.version import find_version
from services.http.api_operations import JSON, OPERATIONS, ApiOperation, list_types
from services.http.errors import REJECTION_DESCRIPTIONS
from services.http.message_types import ErrorReply
from services.limits import DEFAULT_LISTED_CAPTURES, MAX_LISTED_CAPTURES, Limits


@cache  # takes 10 ms, in which no request would be answered
def build_schemas() -> tuple[dict[Any, JsonObject], JsonObject]:
    """Return the schema of each type of body, and the named schemas that these refer to."""
    kinds: dict[Any, None] = {ErrorReply: None}
    for operation in OPERATIONS.values():
        for kind in (operation.reply, *operation.body.values()):
            kinds |= dict.fromkeys(list_types(kind))
    schemas, components = msgspec.json.schema_components([*kinds], ref_template="#/components/schemas/{name}")
    return dict(zip(kinds, schemas, strict=True)), components


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
            "description": "Images, rows of tables or texts in, predictions or boxes out."
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
