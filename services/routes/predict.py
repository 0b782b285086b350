"""Endpoints that predict the label of one image: POST /predict and POST /models/NAME/predict."""

import math
import random

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.http.message_types import PredictionReply
from services.http.request_body import BodyReader, extract_image
from services.http.timeout_protocol import OPEN_REQUESTS
from services.routes.drift import request_source
from services.serving.inference import ModelOutput
from services.serving.models import ModelRegistry


class PredictRoutes:
    """Handlers of the endpoints that predict the label of one image."""

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
        """Answer POST /predict: the label and scores of one image."""
        model = self.model_registry.find_model(request.path_params.get("name"))
        identifier = request.state.id = request_id(request)
        body = await self.body_reader.read_body(request)
        image = await extract_image(request, body)
        output = await model.predict((image,), request_source(request), is_alone(request))
        reply = build_prediction_reply(model.name, identifier, output)
        return Response(msgspec.json.encode(reply), media_type="application/json")


def build_prediction_reply(model: str, identifier: str, output: ModelOutput) -> PredictionReply:
    """Build the reply to a request of one image; ValueError if its scores are not finite, which JSON cannot say."""
    scores = output.scores[0].tolist()
    best = max(range(len(scores)), key=scores.__getitem__)
    if not math.isfinite(scores[best]):
        raise ValueError(f"the scores of model {model} are not finite")
    return PredictionReply(
        model=model,
        version=output.version.id,
        id=identifier,
        label=output.labels[0],
        score=round(scores[best], 6),
        scores={name: round(score, 6) for name, score in zip(output.version.bundle.classes, scores, strict=True)},
    )


def is_alone(request: Request) -> bool:
    """Return whether the server is answering no other request now."""
    return len(request.scope["state"].get(OPEN_REQUESTS, ())) == 1


def request_id(request: Request) -> str:
    """Return the x-request-id of a request, or a random one."""
    identifier = request.headers.get("x-request-id", "")
    if 0 < len(identifier) <= 128 and identifier.isprintable():
        return identifier
    return f"{random.getrandbits(64):016x}"  # not a secret; the system's random source would cost a thread switch
