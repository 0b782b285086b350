"""What the service answers over HTTP: pictures in, labels out; health, counts, and who may ask."""

import asyncio
import json
import logging
import random
import time

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from equipoise.captures.store import CaptureStore
from services.http.auth import WWW_AUTHENTICATE, ApiKeyAuth
from services.http.errors import FAILED, RequestRejected, method_is_not_allowed, nothing_to_compare, path_is_unknown
from services.http.openapi import build_openapi_document, render_docs_page
from services.http.request_body import BodyReader, extract_image
from services.http.responses import EarlyResponse, json_response
from services.limits import Limits
from services.monitoring.drift_client import DriftClient
from services.monitoring.metrics import Metrics
from services.monitoring.metrics_history import MetricsHistory
from services.routes.captures import CaptureRoutes
from services.routes.drift import DriftRoutes, request_source
from services.routes.open_inference import OpenInferenceRoutes
from services.routes.status_page import StatusPageRoutes
from services.serving.models import ModelRegistry, model_status

UNAUTHENTICATED_PATHS = ("/health", "/ready", "/v2/health/live", "/v2/health/ready")  # without a key: who asks has none
BUSY_REPLY_DELAY_SECONDS = 1.0  # before one of too many is told so
MAX_UNREAD_BYTES = 64 << 10  # bytes of a body that are let go by unread
EARLY_REPLY_STATUSES = (401, 408, 413, 429)  # said before all of a body has come

logger = logging.getLogger("equipoise.service")


class HttpApplication:
    """The endpoints of a replica, as an ASGI application."""

    def __init__(
        self,
        model_registry: ModelRegistry,
        limits: Limits,
        metrics: Metrics,
        api_keys: tuple[str, ...] = (),
        access_logger: logging.Logger | None = None,
        drift_client: DriftClient | None = None,
        capture_store: CaptureStore | None = None,
        metrics_history: MetricsHistory | None = None,
    ) -> None:
        """`accesses` is told of each request, `link` asks the monitor of drift, `captures` keeps requests, `noted` has
        counts of the minutes before: if given.
        """
        self.model_registry = model_registry
        self.limits = limits
        self.metrics = metrics
        self.auth = ApiKeyAuth(api_keys)
        self.access_logger = access_logger
        self.body_reader = BodyReader(limits)
        self.is_draining = False
        routes = [
            ("POST", "/predict", self.predict),
            ("POST", "/models/{name}/predict", self.predict),
            *OpenInferenceRoutes(model_registry, limits, self.body_reader).routes(),
            ("GET", "/models", self.list_models),
            ("GET", "/models/{name}/compared", self.get_comparison),
            *DriftRoutes(model_registry, drift_client).routes(),
            *CaptureRoutes(model_registry, self.body_reader, capture_store).routes(),
            *StatusPageRoutes(
                model_registry, metrics_history or MetricsHistory(metrics), drift_client, capture_store
            ).routes(),
            ("GET", "/health", self.get_liveness),
            ("GET", "/ready", self.get_readiness),
            ("GET", "/metrics", self.get_metrics),
            ("GET", "/openapi.json", self.get_openapi),
            ("GET", "/docs", self.get_docs),
            ("GET", "/v2/health/live", self.get_liveness),
            ("GET", "/v2/health/ready", self.get_readiness),
        ]
        self.app = Starlette(
            routes=[
                Route(path, answer if path in UNAUTHENTICATED_PATHS else self.auth(answer), methods=[verb])
                for verb, path, answer in routes
            ],
            exception_handlers={
                RequestRejected: self._handle_rejected,
                HTTPException: self._handle_not_found,
                Exception: self._handle_failure,
            },
        )
        self.app.router.redirect_slashes = False  # to where a client's own Host header says

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count a request and what came of it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 499

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if scope["method"] == "POST":
                self.model_registry.require_room()  # where many are refused, that must cost little
            await self.app(scope, receive, told)
        except RequestRejected as refused:
            request = Request(scope, receive)
            await (await self._handle_rejected(request, refused))(scope, receive, told)
        except ClientDisconnect:
            pass
        finally:
            self._count_request(scope, status, time.perf_counter() - start)

    def _count_request(self, scope: Scope, status: int, seconds: float) -> None:
        """One more request, by its route: paths that strangers make up are not kept."""
        route = scope.get("route")
        path = route.path if route else "other"
        self.metrics.requests_by_status.labels(path, status).inc()
        self.metrics.request_seconds.labels(path).observe(seconds)
        if self.access_logger:
            client, name = (scope.get("client") or [None])[0], scope.get("state", {}).get("id")
            facts = {"time": time.time(), "client": client, "method": scope["method"], "path": scope["path"]}
            facts |= {"status": status, "seconds": round(seconds, 6), "id": name}
            self.access_logger.info(json.dumps(facts))

    async def predict(self, request: Request) -> Response:
        """The label of one picture."""
        model = self.model_registry.find_model(request.path_params.get("name"))
        name = request.state.id = request_id(request)
        body = await self.body_reader.read_body(request)
        said = await model.predict((await extract_image(request, body),), request_source(request))
        scores = said.scores[0].tolist()
        classes = said.version.bundle.classes
        best = max(range(len(scores)), key=scores.__getitem__)
        facts = {
            "model": model.name,
            "version": said.version.id,
            "id": name,
            "label": said.labels[0],
            "score": round(scores[best], 6),
            "scores": {name: round(score, 6) for name, score in zip(classes, scores, strict=True)},
        }
        return json_response(facts)

    async def list_models(self, _: Request) -> Response:
        """Every model, and which bundles answer for it."""
        facts = {"models": [model_status(model) for model in self.model_registry.models.values()]}
        return json_response(facts | {"not_loaded": self.model_registry.load_error})

    async def get_comparison(self, request: Request) -> Response:
        """How far a canary or a shadow agrees with the bundle that answers."""
        model = self.model_registry.find_model(request.path_params["name"])
        other = model.canary or model.shadow
        if other is None:
            raise nothing_to_compare(model.name)
        found = self.metrics.summarize_comparison(model.name, model.current.id, other.id)
        return json_response({"model": model.name, "version": model.current.id, "other": other.id} | found)

    async def get_liveness(self, _: Request) -> Response:
        """The process answers."""
        return json_response({"live": True})

    async def get_readiness(self, _: Request) -> Response:
        """There is a model, and the replica is not about to stop."""
        ready = bool(self.model_registry.models) and not self.is_draining
        return json_response({"ready": ready}, 200 if ready else 503)

    async def get_metrics(self, _: Request) -> Response:
        """For Prometheus."""
        return Response(self.metrics.render_prometheus(), media_type="text/plain; version=0.0.4")

    async def get_openapi(self, _: Request) -> Response:
        """What there is, for machines."""
        return json_response(build_openapi_document(bool(self.auth), self.limits, [*self.model_registry.models]))

    async def get_docs(self, _: Request) -> Response:
        """What there is, for people."""
        return HTMLResponse(
            render_docs_page(build_openapi_document(bool(self.auth), self.limits, [*self.model_registry.models]))
        )

    async def _handle_rejected(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, RequestRejected):
            raise error
        self.metrics.rejected_requests.labels(error.reason).inc()
        if error.reason == "busy":  # who comes again at once would cost what the others need
            await asyncio.sleep(BUSY_REPLY_DELAY_SECONDS)
        headers = {} if error.retry_after_seconds is None else {"retry-after": str(error.retry_after_seconds)}
        headers |= WWW_AUTHENTICATE if error.status == 401 else {}
        read = getattr(request.state, "read", False) or (is_small_body(request) and error.reason == "busy")
        if error.status in EARLY_REPLY_STATUSES and not read:
            return EarlyResponse(request, {"error": error.message}, error.status, headers)
        return json_response({"error": error.message}, error.status, headers)

    async def _handle_not_found(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        path = request.url.path
        self.metrics.rejected_requests.labels("path").inc()
        wrong = {404: path_is_unknown(path), 405: method_is_not_allowed(request.method, path)}
        sentence = wrong[error.status_code].message if error.status_code in wrong else f"{error.detail}: see /docs"
        return json_response({"error": sentence}, error.status_code, dict(error.headers or {}))

    async def _handle_failure(self, request: Request, error: Exception) -> Response:
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return json_response({"error": FAILED}, 500)


def is_small_body(request: Request) -> bool:
    """Whether what still comes of a request is soon over."""
    declared = request.headers.get("content-length", "0" if "transfer-encoding" not in request.headers else "")
    return declared.isdigit() and int(declared) <= MAX_UNREAD_BYTES


def request_id(request: Request) -> str:
    """The client's name for a request, or one of ours."""
    found = request.headers.get("x-request-id", "")
    if 0 < len(found) <= 128 and found.isprintable():
        return found
    return f"{random.getrandbits(64):016x}"  # no secret: the system's own dice cost a switch of threads
