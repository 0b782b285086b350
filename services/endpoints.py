"""What the service answers over HTTP: pictures in, labels out; the Open Inference Protocol; health and counts."""

import hmac
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import torch
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from services import bodies, openapi, tensors
from services.bodies import Bodies
from services.limits import Limits
from services.metrics import Metrics
from services.models import Model, Models
from services.refused import Refused
from services.tensors import Sent

VERSION = "1"  # of the protocol's answer, not of a model
EXTENSIONS = ["binary_tensor_data"]
INPUT, ENCODED, LABELS, SCORES = "pictures", "encoded", "labels", "scores"
OPEN = ("/health", "/ready", "/v2/health/live", "/v2/health/ready")  # without a key: who asks has none

Answer = Callable[[Request], Awaitable[Response]]

log = logging.getLogger("equipoise.service")
accesses = logging.getLogger("equipoise.access")


class Service:
    """The endpoints of a replica, as an ASGI application."""

    def __init__(
        self, models: Models, limits: Limits, metrics: Metrics, keys: tuple[str, ...] = (), access_log: bool = False
    ) -> None:
        self.models = models
        self.limits = limits
        self.metrics = metrics
        self.keys = [key.encode() for key in keys]
        self.access_log = access_log
        self.bodies = Bodies(limits)
        self.draining = False
        model = "/v2/models/{name}"
        routes = [
            ("POST", "/predict", self.predict),
            ("POST", "/models/{name}/predict", self.predict),
            ("GET", "/models", self.listed),
            ("GET", "/health", self.live),
            ("GET", "/ready", self.ready),
            ("GET", "/metrics", self.counts),
            ("GET", "/openapi.json", self.document),
            ("GET", "/docs", self.docs),
            ("GET", "/v2", self.server),
            ("GET", "/v2/health/live", self.live),
            ("GET", "/v2/health/ready", self.ready),
            ("POST", "/v2/repository/index", self.index),
            *(
                (verb, f"{place}{end}", answer)
                for place in (model, f"{model}/versions/{{version}}")
                for verb, end, answer in (
                    ("GET", "", self.metadata),
                    ("GET", "/ready", self.model_ready),
                    ("GET", "/config", self.config),
                    ("GET", "/stats", self.stats),
                    ("POST", "/infer", self.infer),
                )
            ),
        ]
        self.app = Starlette(
            routes=[
                Route(path, answer if path in OPEN else self._for_those_with_a_key(answer), methods=[verb])
                for verb, path, answer in routes
            ],
            exception_handlers={Refused: self._refused, HTTPException: self._missing, Exception: self._failed},
        )

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
            await self.app(scope, receive, told)
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
        if self.access_log:
            client = (scope.get("client") or [None])[0]
            facts = {"time": time.time(), "client": client, "method": scope["method"], "path": scope["path"]}
            accesses.info(json.dumps(facts | {"status": status, "seconds": round(seconds, 6)}))

    async def predict(self, request: Request) -> Response:
        """The label of one picture."""
        model = self._model(request)
        body = await self.bodies.read(request)
        said = await model.answer((await bodies.picture(request, body),))
        scores = said.scores[0].tolist()
        classes = said.version.bundle.classes
        best = max(range(len(scores)), key=scores.__getitem__)
        facts = {
            "model": model.name,
            "version": said.version.id,
            "id": identity(request),
            "label": said.labels[0],
            "score": round(scores[best], 6),
            "scores": {name: round(score, 6) for name, score in zip(classes, scores, strict=True)},
        }
        return answer(facts)

    async def infer(self, request: Request) -> Response:
        """The Open Inference Protocol's."""
        model = self._model(request)
        body = await self.bodies.read(request)
        header = request.headers.get(tensors.LENGTH)
        shape = model.current.bundle.shape
        sent = tensors.raw(body, INPUT, "UINT8", (-1, *shape)) if header == "0" else tensors.sent(body, header)
        said = await model.answer(given(sent, shape, self.limits.batch))
        labels = np.array([*(label.encode() for label in said.labels), None], object)[:-1]
        outputs = {LABELS: labels, SCORES: said.scores.numpy()}
        facts = {"model_name": model.name, "model_version": said.version.id}
        whole, length = tensors.reply(facts, outputs, sent)
        if length is None:
            return Response(whole, media_type="application/json")
        return Response(whole, media_type="application/octet-stream", headers={tensors.LENGTH: str(length)})

    async def listed(self, _: Request) -> Response:
        """Every model, and which bundles answer for it."""
        facts = {"models": [described(model) for model in self.models.held.values()]}
        return answer(facts | {"not_loaded": self.models.not_loaded})

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
        return answer(openapi.document(bool(self.keys), self.limits))

    async def docs(self, _: Request) -> Response:
        """What there is, for people."""
        return HTMLResponse(openapi.page(openapi.document(bool(self.keys), self.limits)))

    async def server(self, _: Request) -> Response:
        return answer({"name": "equipoise", "version": VERSION, "extensions": EXTENSIONS})

    async def index(self, _: Request) -> Response:
        held = self.models.held.values()
        facts = [{"name": model.name, "version": model.current.id, "state": "READY", "reason": ""} for model in held]
        return answer(facts)

    async def metadata(self, request: Request) -> Response:
        model = self._model(request)
        found, classes = model.current.bundle, len(model.current.bundle.classes)
        inputs = [tensor(INPUT, "UINT8", [-1, *found.shape]), tensor(ENCODED, "BYTES", [-1])]
        outputs = [tensor(LABELS, "BYTES", [-1]), tensor(SCORES, "FP32", [-1, classes])]
        facts = {"name": model.name, "versions": [model.current.id]}
        return answer(facts | {"platform": "equipoise", "inputs": inputs, "outputs": outputs})

    async def model_ready(self, request: Request) -> Response:
        return answer({"name": self._model(request).name, "ready": True})

    async def config(self, request: Request) -> Response:
        model = self._model(request)
        facts = {"name": model.name, "platform": "equipoise", "backend": model.current.bundle.engine}
        return answer(facts | {"max_batch_size": self.limits.batch})

    async def stats(self, request: Request) -> Response:
        self._model(request)
        raise Refused(501, "counts are at /metrics, in Prometheus' format", "not implemented")

    def _model(self, request: Request) -> Model:
        """The model that a path names."""
        model = self.models.named(request.path_params.get("name"))
        version = request.path_params.get("version")
        if version not in (None, model.current.id):
            there = f"{model.name} answers as {model.current.id}"
            raise Refused(404, f"{there}, not as version {str(version)[:80]!r}", "unknown model")
        return model

    def _for_those_with_a_key(self, answer: Answer) -> Answer:
        """The same, asked for a key first if there are any."""
        if not self.keys:
            return answer

        async def guarded(request: Request) -> Response:
            self._require_key(request)
            return await answer(request)

        return guarded

    def _require_key(self, request: Request) -> None:
        found = request.headers.get("authorization", "").removeprefix("Bearer ") or request.headers.get("x-api-key", "")
        same = [hmac.compare_digest(found.encode(), key) for key in self.keys]  # each of them: time tells nothing
        if not any(same):
            raise Refused(401, "an API key is needed: send it as authorization: Bearer KEY", "key")

    async def _refused(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, Refused):
            raise error
        self.metrics.refused.labels(error.reason).inc()
        headers = {} if error.wait is None else {"retry-after": str(error.wait)}
        if error.status in (401, 408, 413, 429):  # what still comes of the body would be taken for the next request
            return Lingering(request, {"error": error.sentence}, error.status, headers | {"connection": "close"})
        return answer({"error": error.sentence}, error.status, headers)

    async def _missing(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        path = request.url.path[:80]
        self.metrics.refused.labels("path").inc()
        wrong = {404: f"there is nothing at {path!r}", 405: f"{request.method} is not for {path!r}"}
        sentence = f"{wrong.get(error.status_code, error.detail)}: see /docs"
        return answer({"error": sentence}, error.status_code, dict(error.headers or {}))

    async def _failed(self, request: Request, error: Exception) -> Response:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return answer({"error": "the service failed at this request; its log says why"}, 500)


class Lingering(Response):
    """An answer to a request that may still be on its way: said at once, and what still comes is let go by."""

    def __init__(self, request: Request, facts: Any, status: int, headers: dict[str, str]) -> None:
        super().__init__(encoded(facts), status, headers, "application/json")
        self.request = request

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await bodies.rest(self.request)
        await send({"type": "http.response.body", "body": b""})


def given(sent: Sent, shape: tuple[int, ...], most: int) -> torch.Tensor | tuple[bytes, ...]:
    """The pictures of a request of the protocol, which fit the model."""
    if len(sent.inputs) != 1 or (name := next(iter(sent.inputs))) not in (INPUT, ENCODED):
        raise Refused(400, f"there must be one input, {INPUT} or {ENCODED}; got {', '.join(sent.inputs)[:120]}")
    array = sent.inputs[name]
    if not array.ndim or not len(array):
        raise Refused(400, f"{name} holds no picture")
    if len(array) > most:
        raise Refused(413, f"a request may have {most} pictures, this one has {len(array)}", "too large")
    if name == ENCODED:
        if array.dtype != object or array.ndim != 1:
            raise Refused(400, f"{ENCODED} must be BYTES of the shape [pictures]")
        return tuple(array)
    if array.dtype != np.uint8 or array.shape[1:] != shape:
        wanted, found = ", ".join(map(str, shape)), f"{tensors.datatype(array)} {list(array.shape)}"
        raise Refused(400, f"{INPUT} must be UINT8 of the shape [pictures, {wanted}], got {found}")
    return torch.from_numpy(np.array(array))  # a copy: the body's memory is not to be written to


def tensor(name: str, datatype: str, shape: list[int]) -> dict[str, Any]:
    """How the protocol describes one."""
    return {"name": name, "datatype": datatype, "shape": shape}


def described(model: Model) -> dict[str, Any]:
    """Which bundles answer for a model."""
    facts = {
        role: {"version": one.id, "bundle": one.path, "engine": one.bundle.engine}
        for role, one in model.versions().items()
    }
    share = model.share if model.canary else 0
    return {"name": model.name, "classes": model.current.bundle.classes, "share": share} | facts


def identity(request: Request) -> str:
    """The client's name for a request, or one of ours."""
    found = request.headers.get("x-request-id", "")
    return found if 0 < len(found) <= 128 and found.isprintable() else secrets.token_hex(8)


def encoded(facts: Any) -> bytes:
    """JSON without numbers that JSON does not have."""
    return json.dumps(facts, allow_nan=False, separators=(",", ":")).encode()


def answer(facts: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON as a reply."""
    return Response(encoded(facts), status, headers, "application/json")
