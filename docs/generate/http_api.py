"""Page of the HTTP API, from the OpenAPI document of the service and the types that it is built from."""

import inspect
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from dashboards import model_status
from docs.generate.class_tables import collect_classes, format_class_section, link_class
from docs.generate.fields import format_type
from docs.generate.http_texts import (
    ERRORS_TEXT,
    GROUPS,
    HEADERS_TEXT,
    HTTP_INTRODUCTION,
    KEYS_TEXT,
    PROTOCOL_TEXT,
    REQUEST_HEADERS,
    TYPES_TEXT,
)
from docs.generate.markdown import build_page, format_code, format_table, make_anchor, start_sentence
from services.http import errors, message_types, prediction_types
from services.http.api_operations import OPERATIONS, ApiOperation, list_types
from services.http.errors import REJECTION_DESCRIPTIONS
from services.http.openapi import build_openapi_document
from services.http.prediction_types import BinaryText
from services.limits import Limits

REJECTION_DOC = re.compile(r"Build the (\d{3}) for (.*)", re.DOTALL)
PROTOCOL_PREFIX = "Open Inference Protocol: "
PAGES_STATUSES = ("409",)
"""statuses of the service of pages alone"""


def build_http_api_page() -> str:
    """Build the page of all endpoints, docs/reference/http-api.md."""
    document = build_openapi_document(requires_key=True, limits=Limits(), model_names=[])
    types = [
        part
        for operation in OPERATIONS.values()
        for body in (operation.reply, *operation.body.values())
        for part in list_types(body)
    ]
    return build_page(
        "HTTP API",
        HTTP_INTRODUCTION,
        HEADERS_TEXT,
        format_table(("header", "meaning"), REQUEST_HEADERS.items()),
        format_table(("endpoint", "what it does"), map(format_summary_row, OPERATIONS)),
        "## Keys",
        KEYS_TEXT,
        *(block for title, prefixes in GROUPS.items() for block in (f"## {title}", *build_group(prefixes, document))),
        "## Open Inference Protocol",
        PROTOCOL_TEXT,
        *build_group(("/v2",), document),
        "## Errors",
        ERRORS_TEXT,
        format_table(("status", "meaning", "cases"), format_error_rows()),
        "## Types",
        TYPES_TEXT,
        *(
            block
            for kind in collect_classes(types)
            if is_message(kind)
            for block in format_class_section(kind, link_type)
        ),
    )


def format_summary_row(endpoint: str) -> tuple[str, str]:
    """Format an endpoint's row in the table at the top."""
    summary = start_sentence(OPERATIONS[endpoint].summary)
    return (format_code(endpoint) if endpoint.endswith(" /") else f"[`{endpoint}`](#{make_anchor(endpoint)})"), summary


def is_message(kind: type) -> bool:
    """Return whether a type belongs to the HTTP API alone; the others are those of files."""
    return kind.__module__ in (message_types.__name__, prediction_types.__name__, model_status.__name__)


def link_type(kind: type) -> str:
    """Return a link to the section of a class, here or on the page of file formats."""
    link = link_class(kind)
    return link if is_message(kind) else link.replace("(#", "(file-formats.md#")


def build_group(prefixes: tuple[str, ...], document: dict[str, Any]) -> Iterator[str]:
    """Yield a section for each endpoint whose path begins with one of the prefixes."""
    for endpoint, operation in OPERATIONS.items():
        method, path = endpoint.split()
        if (
            any(path == prefix or path.startswith(f"{prefix}/") for prefix in prefixes if prefix != "/")
            or path in prefixes
        ):
            described = document["paths"][path][method.lower()]
            yield f"### {method} {path}"
            yield start_sentence(operation.summary.removeprefix(PROTOCOL_PREFIX))
            yield format_exchange(operation, described)


def format_exchange(operation: ApiOperation, described: dict[str, Any]) -> str:
    """Format parameters, request body, reply and rejections of an endpoint as a list."""
    lines = [format_parameter(parameter) for parameter in described.get("parameters", [])]
    lines += [f"Body {format_media_type(media, kind)}" for media, kind in group_bodies(operation)]
    [success, *rejections] = described["responses"]
    content = format_media_type(operation.media_type, operation.reply)
    lines.append(f"Reply {format_code(success)} {content}: {described['responses'][success]['description']}")
    if rejections:
        lines.append(f"[Errors](#errors): {', '.join(map(format_code, rejections))}")
    return "\n".join(f"- {line}" for line in lines)


def group_bodies(operation: ApiOperation) -> Iterator[tuple[str, Any]]:
    """Yield the media types of a body with their type, those of image files together."""
    files = [media for media, kind in operation.body.items() if kind is BinaryText]
    if files:
        yield "`, `".join(files[:-1]) + f"` or `{files[-1]}", BinaryText
    yield from ((media, kind) for media, kind in operation.body.items() if kind is not BinaryText)


def format_parameter(parameter: dict[str, Any]) -> str:
    """Format a parameter in the path or the query."""
    schema = parameter["schema"]
    kind = "integer" if schema["type"] == "integer" else "text"
    if schema.get("enum"):
        kind = " or ".join(map(format_code, schema["enum"]))
    elif "enum" in schema:
        kind = (
            "name of a model; it may be left out if the service has only one"
            if parameter["in"] == "query"
            else "name of a model"
        )
    if "maximum" in schema:
        kind += f" from {schema['minimum']} to {schema['maximum']}, by default {schema['default']}"
    if parameter["name"] == "id":
        kind = "id of a capture"
    place = "Path" if parameter["in"] == "path" else "Query"
    return f"{place}: {format_code(parameter['name'])}, {kind}"


def format_media_type(media_type: str, kind: Any) -> str:
    """Format a media type with the type of what it holds, where that is more than text or bytes."""
    if kind is BinaryText:
        return (
            f"{format_code(media_type)}: the bytes of an image file" if "`" in media_type else format_code(media_type)
        )
    named = " or ".join(format_type(part, link_type) for part in list_types(kind))
    return f"{format_code(media_type)} with {named}" if "](" in named else format_code(media_type)


def format_error_rows() -> Iterator[tuple[str, str, str]]:
    """Yield each status with which a request may be rejected, and the cases that the code gives for it."""
    cases: dict[str, list[str]] = {str(status): [] for status in REJECTION_DESCRIPTIONS}
    for function in vars(errors).values():
        match = REJECTION_DOC.match(inspect.getdoc(function) or "") if inspect.isfunction(function) else None
        if match:
            case = match[2].removesuffix(".")
            cases.setdefault(match[1], []).append(case + ", from `services.pages`" * (match[1] in PAGES_STATUSES))
    cases["400"].append("a body whose content is wrong")
    cases["500"] = ["a bug of the service, of which its log says more"]
    for status in sorted(cases):
        meaning = start_sentence(REJECTION_DESCRIPTIONS.get(int(status), HTTPStatus(int(status)).phrase.lower()))
        yield format_code(status), meaning, start_sentence("; ".join(cases[status]))
