"""Endpoints that predict for one image, row or text: POST /predict and POST /models/NAME/predict."""

import random

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.http.request_body import BodyReader
from services.http.timeout_protocol import OPEN_REQUESTS
from services.routes.drift import request_source
from services.serving.models import ModelRegistry


class PredictRoutes:
    """Handlers of the endpoints that predict for one image, row or text."""

    def __init__(self, model_registry: ModelRegistry, body_reader: BodyReader) -> None:
        self.model_registry = model_registry
        self.body_reader = body_reader

    def routes(self) -> list[Route]:
        """Return the route of each endpoint."""
        return [
            Route("/predict", self.predict, methods=["POST"]),
            Route("/models/{name}/predict", self.predict, methods=["POST"]),
        ]

    async def predict(self, request: Request) -> Response:
        """Answer POST /predict, by the kind of data that the model takes."""
        model = self.model_registry.find_model(request.path_params.get("name"))
        identifier = request.state.id = request_id(request)
        body = await self.body_reader.read_body(request)
        kind = model.kind
        content = await kind.parse_body(request, body)
        output = await model.predict(content, request_source(request), is_alone(request))
        reply = kind.build_reply(model.name, identifier, output)
        return Response(msgspec.json.encode(reply), media_type="application/json")


def is_alone(request: Request) -> bool:
    """Return whether the server is answering no other request now."""
    return len(request.scope["state"].get(OPEN_REQUESTS, ())) == 1


def request_id(request: Request) -> str:
    """Return the x-request-id of a request, or a random one."""
    identifier = request.headers.get("x-request-id", "")
    if 0 < len(identifier) <= 128 and identifier.isprintable():
        return identifier
    return f"{random.getrandbits(64):016x}"  # not a secret; the system's random source would cost a thread switch
