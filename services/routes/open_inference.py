"""The Open Inference Protocol's endpoints, version 2, under /v2."""

from typing import Any

import numpy as np
import torch
from starlette.requests import Request
from starlette.responses import Response

from services.http.errors import RequestRejected, counts_are_elsewhere, too_many_pictures, version_is_unknown
from services.http.request_body import BodyReader
from services.http.responses import compress_response, json_response
from services.http.tensor_codec import (
    JSON_LENGTH_HEADER,
    InferenceTensors,
    build_inference_response,
    datatype_name,
    parse_inference_request,
    parse_raw_tensor,
)
from services.limits import Limits
from services.routes.drift import request_source
from services.serving.models import Model, ModelRegistry

SERVER_VERSION = "1"  # of the service's answer, not of a model
PROTOCOL_EXTENSIONS = ["binary_tensor_data"]
IMAGES_INPUT, ENCODED_INPUT, LABELS_OUTPUT, SCORES_OUTPUT = "pictures", "encoded", "labels", "scores"


class OpenInferenceRoutes:
    """What stock clients of the protocol ask."""

    def __init__(self, model_registry: ModelRegistry, limits: Limits, body_reader: BodyReader) -> None:
        self.model_registry = model_registry
        self.limits = limits
        self.body_reader = body_reader

    def routes(self) -> list[tuple[str, str, Any]]:
        """Verb, path and answer of each; those of a model with and without its version."""
        model = "/v2/models/{name}"
        each = (
            ("POST", "/infer", self.infer),
            ("GET", "", self.get_model_metadata),
            ("GET", "/ready", self.get_model_readiness),
            ("GET", "/config", self.get_model_config),
            ("GET", "/stats", self.reject_stats),
        )
        places = (model, f"{model}/versions/{{version}}")
        some = [(verb, f"{place}{end}", what) for place in places for verb, end, what in each]
        return [*some, ("GET", "/v2", self.get_server_metadata), ("POST", "/v2/repository/index", self.list_repository)]

    async def infer(self, request: Request) -> Response:
        """Tensors in, tensors out."""
        model = self._find_model(request)
        body = await self.body_reader.read_body(request)
        header = request.headers.get(JSON_LENGTH_HEADER)
        shape = model.current.bundle.shape
        sent = (
            parse_raw_tensor(body, IMAGES_INPUT, "UINT8", (-1, *shape))
            if header == "0"
            else parse_inference_request(body, header)
        )
        said = await model.predict(extract_images(sent, shape, self.limits.batch), request_source(request))
        labels = np.array([*(label.encode() for label in said.labels), None], object)[:-1]
        outputs = {LABELS_OUTPUT: labels, SCORES_OUTPUT: said.scores.numpy()}
        facts = {"model_name": model.name, "model_version": said.version.id}
        whole, length = build_inference_response(facts, outputs, sent)
        kind, headers = "application/json", {}
        if length is not None:
            kind, headers = "application/octet-stream", {JSON_LENGTH_HEADER: str(length)}
        return compress_response(Response(whole, 200, headers, kind), request)

    async def get_server_metadata(self, _: Request) -> Response:
        """The server itself."""
        return json_response({"name": "equipoise", "version": SERVER_VERSION, "extensions": PROTOCOL_EXTENSIONS})

    async def list_repository(self, _: Request) -> Response:
        """All models."""
        held = self.model_registry.models.values()
        facts = [{"name": model.name, "version": model.current.id, "state": "READY", "reason": ""} for model in held]
        return json_response(facts)

    async def get_model_metadata(self, request: Request) -> Response:
        """A model's inputs and outputs."""
        model = self._find_model(request)
        found, classes = model.current.bundle, len(model.current.bundle.classes)
        inputs = [
            tensor_metadata(IMAGES_INPUT, "UINT8", [-1, *found.shape]),
            tensor_metadata(ENCODED_INPUT, "BYTES", [-1]),
        ]
        outputs = [tensor_metadata(LABELS_OUTPUT, "BYTES", [-1]), tensor_metadata(SCORES_OUTPUT, "FP32", [-1, classes])]
        facts = {"name": model.name, "versions": [model.current.id]}
        return json_response(facts | {"platform": "equipoise", "inputs": inputs, "outputs": outputs})

    async def get_model_readiness(self, request: Request) -> Response:
        """Whether a model answers."""
        return json_response({"name": self._find_model(request).name, "ready": True})

    async def get_model_config(self, request: Request) -> Response:
        """A model's configuration."""
        model = self._find_model(request)
        facts = {"name": model.name, "platform": "equipoise", "backend": model.current.bundle.engine_name}
        return json_response(facts | {"max_batch_size": self.limits.batch})

    async def reject_stats(self, request: Request) -> Response:
        """Not kept in this form."""
        self._find_model(request)
        raise counts_are_elsewhere()

    def _find_model(self, request: Request) -> Model:
        """The model that a path names, and perhaps its version."""
        model = self.model_registry.find_model(request.path_params["name"])
        version = request.path_params.get("version")
        if version not in (None, model.current.id):
            raise version_is_unknown(model.name, model.current.id, str(version))
        return model


def extract_images(
    request_tensors: InferenceTensors, shape: tuple[int, ...], max_images: int
) -> torch.Tensor | tuple[bytes, ...]:
    """The pictures of a request, which fit the model."""
    if len(request_tensors.inputs) != 1 or (name := next(iter(request_tensors.inputs))) not in (
        IMAGES_INPUT,
        ENCODED_INPUT,
    ):
        raise RequestRejected(
            400,
            f"there must be one input, {IMAGES_INPUT} or {ENCODED_INPUT}; "
            f"got {', '.join(request_tensors.inputs)[:120]}",
        )
    array = request_tensors.inputs[name]
    if not array.ndim or not len(array):
        raise RequestRejected(400, f"{name} holds no picture")
    if len(array) > max_images:
        raise too_many_pictures(max_images, len(array))
    if name == ENCODED_INPUT:
        if array.dtype != object or array.ndim != 1:
            raise RequestRejected(400, f"{ENCODED_INPUT} must be BYTES of the shape [pictures]")
        return tuple(array)
    if array.dtype != np.uint8 or array.shape[1:] != shape:
        wanted, found = ", ".join(map(str, shape)), f"{datatype_name(array)} {list(array.shape)}"
        raise RequestRejected(400, f"{IMAGES_INPUT} must be UINT8 of the shape [pictures, {wanted}], got {found}")
    return torch.from_numpy(np.array(array))  # a copy: the body's memory is not to be written to


def tensor_metadata(name: str, datatype: str, shape: list[int]) -> dict[str, Any]:
    """How the protocol describes one."""
    return {"name": name, "datatype": datatype, "shape": shape}
