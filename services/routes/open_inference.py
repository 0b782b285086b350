"""Endpoints of the Open Inference Protocol, version 2, under /v2."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.http.errors import counts_are_elsewhere, version_is_unknown
from services.http.message_types import (
    ModelConfigReply,
    ModelMetadata,
    ModelReadinessReply,
    RepositoryEntry,
    ServerMetadata,
)
from services.http.request_body import BodyReader
from services.http.responses import compress_response, typed_response
from services.http.tensor_codec import (
    JSON_LENGTH_HEADER,
    build_inference_response,
    parse_inference_request,
    parse_raw_tensor,
)
from services.limits import Limits
from services.routes.drift import request_source
from services.serving.models import Model, ModelRegistry

SERVER_VERSION = "1"  # of the server's API, not of a model
PROTOCOL_EXTENSIONS = ["binary_tensor_data"]
MODEL_PREFIXES = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")


class OpenInferenceRoutes:
    """Handlers of the endpoints that stock clients of the protocol call."""

    def __init__(self, model_registry: ModelRegistry, limits: Limits, body_reader: BodyReader) -> None:
        self.model_registry = model_registry
        self.limits = limits
        self.body_reader = body_reader

    def routes(self) -> list[Route]:
        """Return the route of each endpoint but those of `infer_routes`."""
        return [
            *(route for prefix in MODEL_PREFIXES for route in self._model_routes(prefix)),
            Route("/v2", self.get_server_metadata),
            Route("/v2/repository/index", self.list_repository, methods=["POST"]),
        ]

    def infer_routes(self) -> list[Route]:
        """Return the routes on which a model predicts."""
        return [Route(f"{prefix}/infer", self.infer, methods=["POST"]) for prefix in MODEL_PREFIXES]

    def _model_routes(self, prefix: str) -> list[Route]:
        return [
            Route(prefix, self.get_model_metadata),
            Route(f"{prefix}/ready", self.get_model_readiness),
            Route(f"{prefix}/config", self.get_model_config),
            Route(f"{prefix}/stats", self.reject_stats),
        ]

    async def infer(self, request: Request) -> Response:
        """Answer POST .../infer: what a model predicts for a batch, as tensors."""
        model = self._find_model(request)
        body = await self.body_reader.read_body(request)
        header = request.headers.get(JSON_LENGTH_HEADER)
        kind, current = model.kind, model.current
        raw = kind.describe_raw_tensor(current) if header == "0" else None
        tensors = parse_raw_tensor(body, *raw) if raw else parse_inference_request(body, header)
        prediction = await model.predict(kind.parse_tensors(tensors, current), request_source(request))
        outputs = kind.output_tensors(prediction)
        metadata = {"model_name": model.name, "model_version": prediction.version.id}
        content, length = build_inference_response(metadata, outputs, tensors)
        media_type, headers = "application/json", {}
        if length is not None:
            media_type, headers = "application/octet-stream", {JSON_LENGTH_HEADER: str(length)}
        return compress_response(Response(content, 200, headers, media_type), request)

    async def get_server_metadata(self, _: Request) -> Response:
        """Answer GET /v2: name, version and extensions of the server."""
        return typed_response(
            ServerMetadata(name="equipoise", version=SERVER_VERSION, extensions=[*PROTOCOL_EXTENSIONS])
        )

    async def list_repository(self, _: Request) -> Response:
        """Answer POST /v2/repository/index: all models."""
        return typed_response(
            [
                RepositoryEntry(name=model.name, version=model.current.id, state="READY", reason="")
                for model in self.model_registry.models.values()
            ]
        )

    async def get_model_metadata(self, request: Request) -> Response:
        """Answer GET /v2/models/NAME: inputs and outputs of a model."""
        model = self._find_model(request)
        inputs, outputs = model.kind.list_tensors(model.current)
        return typed_response(
            ModelMetadata(
                name=model.name, versions=[model.current.id], platform="equipoise", inputs=inputs, outputs=outputs
            )
        )

    async def get_model_readiness(self, request: Request) -> Response:
        """Answer GET .../ready for a model that is loaded; a request for any other is rejected with a 404."""
        return typed_response(ModelReadinessReply(name=self._find_model(request).name, ready=True))

    async def get_model_config(self, request: Request) -> Response:
        """Answer GET .../config: engine and largest batch size of a model."""
        model = self._find_model(request)
        return typed_response(
            ModelConfigReply(
                name=model.name,
                platform="equipoise",
                backend=model.current.bundle.engine_name,
                max_batch_size=self.limits.batch,
            )
        )

    async def reject_stats(self, request: Request) -> Response:
        """Answer GET .../stats with a 501: statistics are only at /metrics."""
        self._find_model(request)
        raise counts_are_elsewhere()

    def _find_model(self, request: Request) -> Model:
        """Return the model that a path names; reject a version other than the current one."""
        model = self.model_registry.find_model(request.path_params["name"])
        version = request.path_params.get("version")
        if version not in (None, model.current.id):
            raise version_is_unknown(model.name, model.current.id, str(version))
        return model
