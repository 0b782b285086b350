"""The Open Inference Protocol's endpoints, version 2, under /v2."""

from typing import Any

import numpy as np
import torch
from starlette.requests import Request
from starlette.responses import Response

from services.http import errors
from services.http import tensor_codec as tensors
from services.http.errors import Refused
from services.http.request_body import Bodies
from services.http.responses import answer, compressed
from services.http.tensor_codec import Sent
from services.limits import Limits
from services.routes.drift import source
from services.serving.models import Model, Models

VERSION = "1"  # of the service's answer, not of a model
EXTENSIONS = ["binary_tensor_data"]
INPUT, ENCODED, LABELS, SCORES = "pictures", "encoded", "labels", "scores"


class Protocol:
    """What stock clients of the protocol ask."""

    def __init__(self, models: Models, limits: Limits, bodies: Bodies) -> None:
        self.models = models
        self.limits = limits
        self.bodies = bodies

    def routes(self) -> list[tuple[str, str, Any]]:
        """Verb, path and answer of each; those of a model with and without its version."""
        model = "/v2/models/{name}"
        each = (
            ("POST", "/infer", self.infer),
            ("GET", "", self.metadata),
            ("GET", "/ready", self.model_ready),
            ("GET", "/config", self.config),
            ("GET", "/stats", self.stats),
        )
        places = (model, f"{model}/versions/{{version}}")
        some = [(verb, f"{place}{end}", what) for place in places for verb, end, what in each]
        return [*some, ("GET", "/v2", self.server), ("POST", "/v2/repository/index", self.index)]

    async def infer(self, request: Request) -> Response:
        """Tensors in, tensors out."""
        model = self._model(request)
        body = await self.bodies.read(request)
        header = request.headers.get(tensors.LENGTH)
        shape = model.current.bundle.shape
        sent = tensors.raw(body, INPUT, "UINT8", (-1, *shape)) if header == "0" else tensors.sent(body, header)
        said = await model.answer(given(sent, shape, self.limits.batch), source(request))
        labels = np.array([*(label.encode() for label in said.labels), None], object)[:-1]
        outputs = {LABELS: labels, SCORES: said.scores.numpy()}
        facts = {"model_name": model.name, "model_version": said.version.id}
        whole, length = tensors.reply(facts, outputs, sent)
        kind, headers = "application/json", {}
        if length is not None:
            kind, headers = "application/octet-stream", {tensors.LENGTH: str(length)}
        return compressed(Response(whole, 200, headers, kind), request)

    async def server(self, _: Request) -> Response:
        """The server itself."""
        return answer({"name": "equipoise", "version": VERSION, "extensions": EXTENSIONS})

    async def index(self, _: Request) -> Response:
        """All models."""
        held = self.models.held.values()
        facts = [{"name": model.name, "version": model.current.id, "state": "READY", "reason": ""} for model in held]
        return answer(facts)

    async def metadata(self, request: Request) -> Response:
        """A model's inputs and outputs."""
        model = self._model(request)
        found, classes = model.current.bundle, len(model.current.bundle.classes)
        inputs = [tensor(INPUT, "UINT8", [-1, *found.shape]), tensor(ENCODED, "BYTES", [-1])]
        outputs = [tensor(LABELS, "BYTES", [-1]), tensor(SCORES, "FP32", [-1, classes])]
        facts = {"name": model.name, "versions": [model.current.id]}
        return answer(facts | {"platform": "equipoise", "inputs": inputs, "outputs": outputs})

    async def model_ready(self, request: Request) -> Response:
        """Whether a model answers."""
        return answer({"name": self._model(request).name, "ready": True})

    async def config(self, request: Request) -> Response:
        """A model's configuration."""
        model = self._model(request)
        facts = {"name": model.name, "platform": "equipoise", "backend": model.current.bundle.engine}
        return answer(facts | {"max_batch_size": self.limits.batch})

    async def stats(self, request: Request) -> Response:
        """Not kept in this form."""
        self._model(request)
        raise errors.counts_are_elsewhere()

    def _model(self, request: Request) -> Model:
        """The model that a path names, and perhaps its version."""
        model = self.models.named(request.path_params["name"])
        version = request.path_params.get("version")
        if version not in (None, model.current.id):
            raise errors.version_is_unknown(model.name, model.current.id, str(version))
        return model


def given(sent: Sent, shape: tuple[int, ...], most: int) -> torch.Tensor | tuple[bytes, ...]:
    """The pictures of a request, which fit the model."""
    if len(sent.inputs) != 1 or (name := next(iter(sent.inputs))) not in (INPUT, ENCODED):
        raise Refused(400, f"there must be one input, {INPUT} or {ENCODED}; got {', '.join(sent.inputs)[:120]}")
    array = sent.inputs[name]
    if not array.ndim or not len(array):
        raise Refused(400, f"{name} holds no picture")
    if len(array) > most:
        raise errors.too_many_pictures(most, len(array))
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
