"""OpenAPI document of the site's endpoints, made from their routes."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from equipoise.type_aliases import JsonObject
from equipoise.version import find_version
from services.http.responses import compress_response, json_response
from services.site.site_routes import ApiDescription, SiteRoute, page_route

REJECTIONS = {
    400: "the request cannot be understood, or its options are refused",
    401: "an API key is required",
    403: "the key has not the role that is needed",
    404: "there is nothing of this name",
    409: "the request contradicts what is there or in progress",
    503: "Ray or the service does not answer",
}
"""meaning of each status of a refusal"""
PATH_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")


class FailureReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answer to a request that is refused."""

    error: str
    """one sentence: what cannot be done, why, and what to do"""
    code: str | None = None
    """stable name of the kind of mistake, as the commands print it"""


class ApiDocument:
    """OpenAPI document of all endpoints, at /api/openapi.json."""

    def __init__(self, routes: Sequence[SiteRoute], requires_key: bool) -> None:
        self.document = build_site_document(routes, requires_key)

    def routes(self) -> list[SiteRoute]:
        """Return the route of the document."""
        return [page_route("/api/openapi.json", self.get_document)]

    async def get_document(self, request: Request) -> Response:
        """Answer GET /api/openapi.json with the document of all endpoints."""
        return compress_response(json_response(self.document), request)


def build_site_document(routes: Sequence[SiteRoute], requires_key: bool) -> JsonObject:
    """Build the OpenAPI document of the described routes."""
    described = [(route, route.description) for route in routes if route.description is not None]
    kinds = [FailureReply, *(kind for _, entry in described for kind in (entry.reply, entry.body) if kind is not None)]
    kinds = [kind for index, kind in enumerate(kinds) if kind not in kinds[:index]]
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schema_pairs = [*zip(kinds, schemas, strict=True)]
    paths: JsonObject = {}
    for route, entry in described:
        path = PATH_PARAMETER.sub(r"{\1}", route.path)
        method = next(iter((route.methods or {"GET"}) - {"HEAD"})).lower()
        paths.setdefault(path, {})[method] = describe_endpoint(route, entry, schema_pairs)
    document: JsonObject = {
        "openapi": "3.1.0",
        "info": {"title": "Equipoise site", "version": find_version()},
        "paths": paths,
        "components": {"schemas": components},
    }
    if requires_key:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
    return document


def describe_endpoint(route: SiteRoute, entry: ApiDescription, schema_pairs: Sequence[tuple[Any, Any]]) -> JsonObject:
    """Describe one endpoint: parameters, body, reply, refusals and the role that it needs."""
    content = {kind: {"application/json": {"schema": schema}} for kind, schema in hashable_pairs(schema_pairs)}
    responses: JsonObject = {
        str(entry.status): {"description": entry.returns, "content": content[repr(entry.reply)]},
    }
    for status in sorted({401, 403, *entry.rejections}):
        responses[str(status)] = {"description": REJECTIONS[status], "content": content[repr(FailureReply)]}
    parameters: list[JsonObject] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in PATH_PARAMETER.findall(route.path)
    ]
    parameters += [
        {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
        for name, text in entry.query.items()
    ]
    body = {"requestBody": {"required": True, "content": content[repr(entry.body)]}} if entry.body is not None else {}
    summary = {"summary": entry.summary, "x-role": str(route.role)}
    return summary | ({"parameters": parameters} if parameters else {}) | body | {"responses": responses}


def hashable_pairs(schema_pairs: Sequence[tuple[Any, Any]]) -> list[tuple[str, Any]]:
    """Return the schema by the text of its type: a type such as `list[X]` need not be hashable."""
    return [(repr(kind), schema) for kind, schema in schema_pairs]
