"""Page of the HTTP API, from the OpenAPI document of the service and the types that it is built from."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

from docs.generate.class_tables import collect_classes, format_class_section, link_class
from docs.generate.fields import format_type
from docs.generate.http_texts import ERRORS_TEXT, GROUPS, INTRODUCTION, KEYS_TEXT, PROTOCOL_TEXT, TYPES_TEXT
from docs.generate.markdown import build_page, format_code, format_table, start_sentence
from services.http import errors
from services.http.errors import INTERNAL_ERROR_MESSAGE, REJECTION_DESCRIPTIONS
from services.http.openapi import JSON, OPERATIONS, ApiOperation, BinaryText, build_openapi_document
from services.limits import Limits

REJECTION_DOC = re.compile(r"Build the (\d{3}) for (.*)", re.DOTALL)
PAGES_STATUSES = ("409",)
"""statuses of the service of pages alone"""


def build_http_api_page() -> str:
    """Build docs/reference/http-api.md."""
    document = build_openapi_document(requires_key=True, limits=Limits(), model_names=[])
    types = [part for operation in OPERATIONS.values() for part in (operation.reply, *operation.body.values())]
    return build_page(
        "HTTP API",
        INTRODUCTION,
        format_table(("endpoint", "what it does"), map(format_summary_row, OPERATIONS)),
        "## Keys",
        KEYS_TEXT,
        *(
            block
            for title, prefixes in GROUPS.items()
            for block in (f"## {title}", *build_group(prefixes, document))
        ),
        "## Open Inference Protocol",
        PROTOCOL_TEXT,
        *build_group(("/v2",), document),
        "## Errors",
        ERRORS_TEXT,
        format_table(("status", "cases"), format_error_rows()),
        "## Types",
        TYPES_TEXT,
        *(block for kind in collect_classes(types) for block in format_class_section(kind)),
    )


def format_summary_row(endpoint: str) -> tuple[str, str]:
    """Format an endpoint's row in the table at the top."""
    return format_code(endpoint), start_sentence(OPERATIONS[endpoint].summary)


def build_group(prefixes: tuple[str, ...], document: dict[str, Any]) -> Iterator[str]:
    """Yield a section for each endpoint whose path begins with one of the prefixes."""
    for endpoint, operation in OPERATIONS.items():
        method, path = endpoint.split()
        if any(path == prefix or path.startswith(f"{prefix}/") for prefix in prefixes if prefix != "/") or path in prefixes:
            described = document["paths"][path][method.lower()]
            yield f"### {method} {path}"
            yield start_sentence(operation.summary)
            yield format_exchange(operation, described)


def format_exchange(operation: ApiOperation, described: dict[str, Any]) -> str:
    """Format parameters, request body, reply and rejections of an endpoint as a list."""
    lines = [format_parameter(parameter) for parameter in described.get("parameters", [])]
    lines += [f"Body: {format_media_type(media, kind)}" for media, kind in group_bodies(operation)]
    [success, *rejections] = described["responses"]
    content = format_media_type(operation.media_type, operation.reply)
    lines.append(f"Reply {format_code(success)}: {content}, {described['responses'][success]['description']}")
    if rejections:
        lines.append(f"[Errors](#errors): {', '.join(map(format_code, rejections))}")
    return "\n".join(f"- {line}" for line in lines)


def group_bodies(operation: ApiOperation) -> Iterator[tuple[str, Any]]:
    """Yield the media types of a body with their type, those of image files together."""
    files = [media for media, kind in operation.body.items() if kind is BinaryText]
    if files:
        yield "`, `".join(files), BinaryText
    yield from ((media, kind) for media, kind in operation.body.items() if kind is not BinaryText)


def format_parameter(parameter: dict[str, Any]) -> str:
    """Format a parameter in the path or the query."""
    schema = parameter["schema"]
    kind = "integer" if schema["type"] == "integer" else "text"
    if schema.get("enum"):
        kind = " or ".join(map(format_code, schema["enum"]))
    elif "enum" in schema:
        kind = "name of a model; it may be left out if the service has only one" if parameter["in"] == "query" else "name of a model"
    if "maximum" in schema:
        kind += f" from {schema['minimum']} to {schema['maximum']}, by default {schema['default']}"
    place = "Path" if parameter["in"] == "path" else "Query"
    return f"{place}: {format_code(parameter['name'])}, {kind}"


def format_media_type(media_type: str, kind: Any) -> str:
    """Format a media type with the type of what it holds, where that is more than text or bytes."""
    if kind is BinaryText:
        return f"{format_code(media_type)}, the bytes of an image file" if "image/png`" in media_type else format_code(media_type)
    named = format_type(kind, link_class)
    return f"{format_code(media_type)} with {named}" if "](" in named else format_code(media_type)


def format_error_rows() -> Iterator[tuple[str, str]]:
    """Yield each status with which a request may be rejected, and the cases that the code gives for it."""
    cases: dict[str, list[str]] = {str(status): [] for status in REJECTION_DESCRIPTIONS}
    for function in vars(errors).values():
        match = REJECTION_DOC.match(inspect.getdoc(function) or "") if inspect.isfunction(function) else None
        if match:
            case = match[2].removesuffix(".")
            cases.setdefault(match[1], []).append(case + " (pages)" * (match[1] in PAGES_STATUSES))
    cases["400"].append("a body whose content is wrong")
    cases["500"] = [f'a bug of the service: "{INTERNAL_ERROR_MESSAGE}"']
    for status in sorted(cases):
        description = REJECTION_DESCRIPTIONS.get(int(status), "")
        yield format_code(status), start_sentence(f"{description}: {'; '.join(cases[status])}" if description else "; ".join(cases[status]))
