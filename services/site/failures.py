"""Answers to requests that fail: a page, a part of a page or JSON with the one sentence that says why."""

import logging

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from equipoise.errors import EquipoiseError
from equipoise.formatting import make_printable
from services.http.errors import RequestRejected
from services.http.responses import json_response
from services.site.rendering import PageRenderer

STATUS_BY_CODE = {
    "path-missing": 404,
    "model-unknown": 404,
    "bundle-missing": 404,
    "capture-missing": 404,
    "plan-missing": 404,
    "path-in-use": 409,
    "path-exists": 409,
    "run-mismatch": 409,
    "label-conflict": 409,
    "rollback-impossible": 409,
    "cluster-unreachable": 503,
    "service-unavailable": 503,
    "disk-full": 507,
}
"""HTTP status by code of an error; 400 for all others"""
INTERNAL_ERROR = "the site failed to answer this request; its log, where equipoise up was started, says why"

logger = logging.getLogger(__name__)


class FailureHandlers:
    """Exception handlers of the site."""

    def __init__(self, renderer: PageRenderer) -> None:
        self.renderer = renderer

    async def answer_refused(self, request: Request, error: Exception) -> Response:
        """Answer a mistake of the user with its sentence and the status of its code."""
        if not isinstance(error, EquipoiseError):
            raise error
        return self.render_failure(request, STATUS_BY_CODE.get(error.code, 400), str(error), error.code)

    async def answer_rejected(self, request: Request, error: Exception) -> Response:
        """Answer a rejected request with its status and sentence."""
        if not isinstance(error, RequestRejected):
            raise error
        return self.render_failure(request, error.status, error.message)

    async def answer_unknown(self, request: Request, error: Exception) -> Response:
        """Answer a request for what the site does not have, of a wrong method, or with a form that cannot be read."""
        if not isinstance(error, HTTPException):
            raise error
        status, path = error.status_code, repr(request.url.path[:200])
        sentence = f"cannot read the request to {path}: {error.detail}"
        if status == 404:
            sentence = f"cannot find {path}; the navigation leads to what there is"
        elif status == 405:
            sentence = f"cannot {request.method} {path}: this address does not take the method"
        return self.render_failure(request, status, sentence)

    async def answer_disconnected(self, _: Request, __: Exception) -> Response:
        """Answer nobody: the client has gone."""
        return Response(status_code=499)

    async def answer_failure(self, request: Request, error: Exception) -> Response:
        """Answer a request at which the site itself failed, and log the traceback."""
        logger.error("cannot answer %s %s: internal error", request.method, request.url.path, exc_info=error)
        return self.render_failure(request, 500, INTERNAL_ERROR)

    def render_failure(self, request: Request, status: int, sentence: str, code: str | None = None) -> Response:
        """Render a failure for whoever asked: JSON for the API, a note for a part of a page, otherwise a page."""
        sentence = make_printable(sentence)
        headers = {"www-authenticate": "Bearer"} if status == 401 else None
        is_part = "hx-request" in request.headers
        if not is_part and (
            request.url.path.startswith("/api/") or "text/html" not in request.headers.get("accept", "")
        ):
            return json_response({"error": sentence, **({"code": code} if code else {})}, status, headers)
        template = "failure_note.html" if is_part else "failure.html"
        return self.renderer.render_page(request, template, status, sentence=sentence, status=status)
