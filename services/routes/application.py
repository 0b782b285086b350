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

from equipoise.captures.store import Captures
from services.http import errors, openapi
from services.http import request_body as bodies
from services.http.auth import ASKS, Guard
from services.http.errors import Refused
from services.http.request_body import Bodies
from services.http.responses import Lingering, answer
from services.limits import Limits
from services.monitoring.drift_client import Link
from services.monitoring.metrics import Metrics
from services.monitoring.metrics_history import Noted
from services.routes.captures import Captured
from services.routes.drift import Watched, source
from services.routes.open_inference import Protocol
from services.routes.status_page import Live
from services.serving.models import Models, described

OPEN = ("/health", "/ready", "/v2/health/live", "/v2/health/ready")  # without a key: who asks has none
HOLD_SECONDS = 1.0  # before one of too many is told so
SMALL = 64 << 10  # bytes of a body that are let go by unread
UNREAD = (401, 408, 413, 429)  # said before all of a body has come

log = logging.getLogger("equipoise.service")


class Service:
    """The endpoints of a replica, as an ASGI application."""

    def __init__(
        self,
        models: Models,
        limits: Limits,
        metrics: Metrics,
        keys: tuple[str, ...] = (),
        accesses: logging.Logger | None = None,
        link: Link | None = None,
        captures: Captures | None = None,
        noted: Noted | None = None,
    ) -> None:
        """`accesses` is told of each request, `link` asks the monitor of drift, `captures` keeps requests, `noted` has
        counts of the minutes before: if given.
        """
        self.models = models
        self.limits = limits
        self.metrics = metrics
        self.guard = Guard(keys)
        self.accesses = accesses
        self.bodies = Bodies(limits)
        self.draining = False
        routes = [
            ("POST", "/predict", self.predict),
            ("POST", "/models/{name}/predict", self.predict),
            *Protocol(models, limits, self.bodies).routes(),
            ("GET", "/models", self.listed),
            ("GET", "/models/{name}/compared", self.compared),
            *Watched(models, link).routes(),
            *Captured(models, self.bodies, captures).routes(),
            *Live(models, noted or Noted(metrics), link, captures).routes(),
            ("GET", "/health", self.live),
            ("GET", "/ready", self.ready),
            ("GET", "/metrics", self.counts),
            ("GET", "/openapi.json", self.document),
            ("GET", "/docs", self.docs),
            ("GET", "/v2/health/live", self.live),
            ("GET", "/v2/health/ready", self.ready),
        ]
        self.app = Starlette(
            routes=[
                Route(path, answer if path in OPEN else self.guard(answer), methods=[verb])
                for verb, path, answer in routes
            ],
            exception_handlers={Refused: self._refused, HTTPException: self._missing, Exception: self._failed},
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
                self.models.require_room()  # where many are refused, that must cost little
            await self.app(scope, receive, told)
        except Refused as refused:
            request = Request(scope, receive)
            await (await self._refused(request, refused))(scope, receive, told)
        except ClientDisconnect:
            pass
        finally:
            self._count(scope, status, time.perf_counter() - start)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        """One more request, by its route: paths that strangers make up are not kept."""
        route = scope.get("route")
        path = route.path if route else "other"
        self.metrics.requests.labels(path, status).inc()
        self.metrics.seconds.labels(path).observe(seconds)
        if self.accesses:
            client, name = (scope.get("client") or [None])[0], scope.get("state", {}).get("id")
            facts = {"time": time.time(), "client": client, "method": scope["method"], "path": scope["path"]}
            facts |= {"status": status, "seconds": round(seconds, 6), "id": name}
            self.accesses.info(json.dumps(facts))

    async def predict(self, request: Request) -> Response:
        """The label of one picture."""
        model = self.models.named(request.path_params.get("name"))
        name = request.state.id = identity(request)
        body = await self.bodies.read(request)
        said = await model.answer((await bodies.picture(request, body),), source(request))
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
        return answer(facts)

    async def listed(self, _: Request) -> Response:
        """Every model, and which bundles answer for it."""
        facts = {"models": [described(model) for model in self.models.held.values()]}
        return answer(facts | {"not_loaded": self.models.not_loaded})

    async def compared(self, request: Request) -> Response:
        """How far a canary or a shadow agrees with the bundle that answers."""
        model = self.models.named(request.path_params["name"])
        other = model.canary or model.shadow
        if other is None:
            raise errors.nothing_to_compare(model.name)
        found = self.metrics.comparison(model.name, model.current.id, other.id)
        return answer({"model": model.name, "version": model.current.id, "other": other.id} | found)

    async def live(self, _: Request) -> Response:
        """The process answers."""
        return answer({"live": True})

    async def ready(self, _: Request) -> Response:
        """There is a model, and the replica is not about to stop."""
        ready = bool(self.models.held) and not self.draining
        return answer({"ready": ready}, 200 if ready else 503)

    async def counts(self, _: Request) -> Response:
        """For Prometheus."""
        return Response(self.metrics.told(), media_type="text/plain; version=0.0.4")

    async def document(self, _: Request) -> Response:
        """What there is, for machines."""
        return answer(openapi.document(bool(self.guard), self.limits, [*self.models.held]))

    async def docs(self, _: Request) -> Response:
        """What there is, for people."""
        return HTMLResponse(openapi.page(openapi.document(bool(self.guard), self.limits, [*self.models.held])))

    async def _refused(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, Refused):
            raise error
        self.metrics.refused.labels(error.reason).inc()
        if error.reason == "busy":  # who comes again at once would cost what the others need
            await asyncio.sleep(HOLD_SECONDS)
        headers = {} if error.wait is None else {"retry-after": str(error.wait)}
        headers |= ASKS if error.status == 401 else {}
        read = getattr(request.state, "read", False) or (small(request) and error.reason == "busy")
        if error.status in UNREAD and not read:
            return Lingering(request, {"error": error.sentence}, error.status, headers)
        return answer({"error": error.sentence}, error.status, headers)

    async def _missing(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        path = request.url.path
        self.metrics.refused.labels("path").inc()
        wrong = {404: errors.path_is_unknown(path), 405: errors.method_is_not_allowed(request.method, path)}
        sentence = wrong[error.status_code].sentence if error.status_code in wrong else f"{error.detail}: see /docs"
        return answer({"error": sentence}, error.status_code, dict(error.headers or {}))

    async def _failed(self, request: Request, error: Exception) -> Response:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return answer({"error": errors.FAILED}, 500)


def small(request: Request) -> bool:
    """Whether what still comes of a request is soon over."""
    declared = request.headers.get("content-length", "0" if "transfer-encoding" not in request.headers else "")
    return declared.isdigit() and int(declared) <= SMALL


def identity(request: Request) -> str:
    """The client's name for a request, or one of ours."""
    found = request.headers.get("x-request-id", "")
    if 0 < len(found) <= 128 and found.isprintable():
        return found
    return f"{random.getrandbits(64):016x}"  # no secret: the system's own dice cost a switch of threads
