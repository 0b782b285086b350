"""ASGI application of a replica: routes, authentication, error handlers, metrics and the access log."""

import asyncio
import json
import logging
import time

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Message, Receive, Scope, Send

from equipoise.captures.store import CaptureStore
from services.http.auth import ApiKeyAuth, build_challenge
from services.http.errors import (
    INTERNAL_ERROR_MESSAGE,
    RequestRejected,
    labelling_is_off,
    method_is_not_allowed,
    nothing_to_compare,
    path_is_unknown,
)
from services.http.message_types import LivenessReply, ModelsReply, ReadinessReply
from services.http.openapi import build_openapi_document, render_docs_page
from services.http.request_body import BodyReader
from services.http.responses import EarlyResponse, json_response, typed_response
from services.labelling.application import LabellingApplication
from services.limits import Limits
from services.monitoring.drift_client import DriftClient
from services.monitoring.metrics import Metrics
from services.monitoring.metrics_history import MetricsHistory
from services.routes.captures import CaptureRoutes
from services.routes.drift import DriftRoutes
from services.routes.open_inference import OpenInferenceRoutes
from services.routes.predict import PredictRoutes
from services.routes.status_page import StatusPageRoutes
from services.routes.try_page import TryPageRoutes
from services.serving.models import ModelRegistry, model_status

BUSY_REPLY_DELAY_SECONDS = 1.0  # delay of a 429: a client that retries at once would cost what the others need
MAX_UNREAD_BYTES = 64 << 10  # a rejected body up to this size need not be drained
LABEL_PATH = "/label"
EARLY_REPLY_STATUSES = (401, 408, 413, 429)  # sent before the whole body has arrived

logger = logging.getLogger(__name__)


class HttpApplication:
    """ASGI application with all endpoints of a replica."""

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
        label_page: LabellingApplication | None = None,
    ) -> None:
        """Build the routes; without `drift_client`, `capture_store` or `label_page` the endpoints for these answer 404.

        `access_logger` gets a line of JSON per request, `metrics_history` holds the metrics of the last minutes.
        """
        self.model_registry = model_registry
        self.limits = limits
        self.metrics = metrics
        self.auth = ApiKeyAuth(api_keys)
        self.access_logger = access_logger
        self.body_reader = BodyReader(limits)
        self.is_draining = False
        self.prediction_routes = [  # answered without the router, which costs as much as the rest of a reply
            self.auth.protect(route)
            for route in (
                *PredictRoutes(model_registry, self.body_reader).routes(),
                *OpenInferenceRoutes(model_registry, limits, self.body_reader).infer_routes(),
            )
        ]
        health_routes = [  # orchestrators that ask have no key
            Route("/health", self.get_liveness),
            Route("/ready", self.get_readiness),
            Route("/v2/health/live", self.get_liveness),
            Route("/v2/health/ready", self.get_readiness),
        ]
        routes = [
            *OpenInferenceRoutes(model_registry, limits, self.body_reader).routes(),
            Route("/models", self.list_models),
            Route("/models/{name}/compared", self.get_comparison),
            *DriftRoutes(model_registry, drift_client).routes(),
            *CaptureRoutes(model_registry, self.body_reader, capture_store).routes(),
            *StatusPageRoutes(
                model_registry, metrics_history or MetricsHistory(metrics), drift_client, capture_store
            ).routes(),
            *TryPageRoutes(model_registry, bool(self.auth)).routes(),
            Route("/metrics", self.get_metrics),
            Route("/openapi.json", self.get_openapi),
            Route("/docs", self.get_docs),
        ]
        self.app = Starlette(
            routes=[
                *health_routes,
                *self.prediction_routes,
                *map(self.auth.protect, [*routes, build_label_entry(label_page)]),
                *([Mount(LABEL_PATH, label_page.app)] if label_page else []),
            ],
            exception_handlers={
                RequestRejected: self._handle_rejected,
                HTTPException: self._handle_not_found,
                Exception: self._handle_failure,
            },
        )
        self.app.router.redirect_slashes = False  # a redirect would lead wherever the client's Host header says

    def start_draining(self) -> None:
        """Answer GET /ready with a 503 from now on, because the replica is about to stop."""
        self.is_draining = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and count it with its status."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 499

        async def send_and_record(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if scope["method"] == "POST" and not scope["path"].startswith(f"{LABEL_PATH}/"):
                self.model_registry.require_room()  # before routing: rejecting many requests must cost little
                response = await self._answer_prediction(scope, receive)
                if response is not None:
                    status = response.status_code
                    await response(scope, receive, send)
                    return
            await self.app(scope, receive, send_and_record)
        except RequestRejected as rejection:
            request = Request(scope, receive)
            await (await self._handle_rejected(request, rejection))(scope, receive, send_and_record)
        except ClientDisconnect:
            pass
        finally:
            self._count_request(scope, status, time.perf_counter() - start)

    async def _answer_prediction(self, scope: Scope, receive: Receive) -> Response | None:
        """Return the response to a request for a prediction; None if it asks for something else."""
        for route in self.prediction_routes:
            if match := route.path_regex.match(scope["path"]):
                scope["route"], scope["path_params"] = route, match.groupdict()
                request = Request(scope, receive)
                try:
                    response: Response = await route.endpoint(request)
                except (RequestRejected, ClientDisconnect):
                    raise
                except Exception as error:
                    return await self._handle_failure(request, error)
                return response
        return None

    def _count_request(self, scope: Scope, status: int, seconds: float) -> None:
        """Count and log a request by its route; unknown paths count as `other`, as clients can invent any number."""
        path = find_route_path(scope)
        self.metrics.count_request(path, status, seconds)
        if self.access_logger:
            client, identifier = (scope.get("client") or [None])[0], scope.get("state", {}).get("id")
            entry = {"time": time.time(), "client": client, "method": scope["method"], "path": scope["path"]}
            entry |= {"status": status, "seconds": round(seconds, 6), "id": identifier}
            self.access_logger.info(json.dumps(entry))

    async def list_models(self, _: Request) -> Response:
        """Answer GET /models: every model and the bundles that answer for it."""
        models = [model_status(model) for model in self.model_registry.models.values()]
        return typed_response(ModelsReply(models=models, not_loaded=self.model_registry.load_error))

    async def get_comparison(self, request: Request) -> Response:
        """Answer GET /models/NAME/compared: how far a canary or shadow agrees with the current version."""
        model = self.model_registry.find_model(request.path_params["name"])
        other = model.canary or model.shadow
        if other is None:
            raise nothing_to_compare(model.name)
        return typed_response(self.metrics.summarize_comparison(model.name, model.current.id, other.id))

    async def get_liveness(self, _: Request) -> Response:
        """Answer GET /health: the process is alive."""
        return typed_response(LivenessReply(live=True))

    async def get_readiness(self, _: Request) -> Response:
        """Answer GET /ready: 200 if a model is loaded and the replica is not about to stop, otherwise 503."""
        ready = bool(self.model_registry.models) and not self.is_draining
        return typed_response(ReadinessReply(ready=ready), 200 if ready else 503)

    async def get_metrics(self, _: Request) -> Response:
        """Answer GET /metrics in the Prometheus text format."""
        return Response(self.metrics.render_prometheus(), media_type="text/plain; version=0.0.4")

    async def get_openapi(self, _: Request) -> Response:
        """Answer GET /openapi.json with the OpenAPI document."""
        return json_response(build_openapi_document(bool(self.auth), self.limits, [*self.model_registry.models]))

    async def get_docs(self, _: Request) -> Response:
        """Answer GET /docs with the API as an HTML page."""
        return HTMLResponse(
            render_docs_page(build_openapi_document(bool(self.auth), self.limits, [*self.model_registry.models]))
        )

    async def _handle_rejected(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, RequestRejected):
            raise error
        self.metrics.rejected_requests.labels(error.reason).inc()
        if error.reason == "busy":
            await asyncio.sleep(BUSY_REPLY_DELAY_SECONDS)
        headers = {} if error.retry_after_seconds is None else {"retry-after": str(error.retry_after_seconds)}
        headers |= build_challenge(request) if error.status == 401 else {}
        is_read = request.scope["state"].get("read", False) or (is_small_body(request) and error.reason == "busy")
        if error.status in EARLY_REPLY_STATUSES and not is_read:
            return EarlyResponse(request, {"error": error.message}, error.status, headers)
        return json_response({"error": error.message}, error.status, headers)

    async def _handle_not_found(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        path = request.url.path
        self.metrics.rejected_requests.labels("path").inc()
        rejections = {404: path_is_unknown(path), 405: method_is_not_allowed(request.method, path)}
        rejection = rejections.get(error.status_code)
        message = rejection.message if rejection else f"{error.detail}: see /docs"
        return json_response({"error": message}, error.status_code, dict(error.headers or {}))

    async def _handle_failure(self, request: Request, error: Exception) -> Response:
        logger.error("cannot answer %s %s: internal error", request.method, request.url.path, exc_info=error)
        return json_response({"error": INTERNAL_ERROR_MESSAGE}, 500)


def find_route_path(scope: Scope) -> str:
    """Return the path of the route that answered a request; `other` without one."""
    route = scope.get("route")
    if isinstance(route, Mount):
        return str(route.path)
    return f"{scope.get('root_path', '')}{route.path}" if route else "other"


def build_label_entry(label_page: LabellingApplication | None) -> Route:
    """Build the route that leads to the labelling page, whose addresses are relative to its folder."""

    async def lead_to_page(_: Request) -> Response:
        if label_page is None:
            raise labelling_is_off()
        return Response(status_code=307, headers={"location": f"{LABEL_PATH.lstrip('/')}/"})

    return Route(LABEL_PATH, lead_to_page)


def is_small_body(request: Request) -> bool:
    """Return whether a request declares a body of at most `MAX_UNREAD_BYTES`."""
    declared = request.headers.get("content-length", "0" if "transfer-encoding" not in request.headers else "")
    return declared.isdigit() and int(declared) <= MAX_UNREAD_BYTES
