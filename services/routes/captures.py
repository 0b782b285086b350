"""Requests that were kept, and labels for them, over HTTP."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from equipoise.captures.capture import POOLS
from equipoise.captures.store import Captures, Unknown
from services.http import errors
from services.http.auth import require_own_site
from services.http.errors import Refused
from services.http.request_body import Bodies
from services.http.responses import answer
from services.serving.models import Models

MOST_LISTED = 1000


class Captured:
    """The endpoints about captures."""

    def __init__(self, models: Models, bodies: Bodies, captures: Captures | None) -> None:
        self.models = models
        self.bodies = bodies
        self.captures = captures

    def routes(self) -> list[tuple[str, str, Callable[[Request], Awaitable[Response]]]]:
        """Verb, path, answer."""
        return [
            ("GET", "/capture", self.listed),
            ("POST", "/capture/labels", self.labels),
            ("GET", "/capture/{id}", self.picture),
            ("POST", "/capture/{id}/label", self.label),
        ]

    async def listed(self, request: Request) -> Response:
        """What was kept, the most useful to label first."""
        held = self._there()
        pool, most = request.query_params.get("pool"), request.query_params.get("most", "100")
        few = most.isascii() and most.isdigit() and len(most) <= len(str(MOST_LISTED)) and int(most) <= MOST_LISTED
        if pool not in (None, *POOLS) or not few:
            raise Refused(400, f"ask for a pool of {', '.join(POOLS)}, and for {MOST_LISTED} at most")
        found = await tried(held.listed, pool, int(most))
        return answer({"captures": found, "trouble": held.trouble})

    async def picture(self, request: Request) -> Response:
        """One picture, as the model took it."""
        data = await tried(self._there().picture, request.path_params["id"])
        return Response(data, media_type="image/png")

    async def label(self, request: Request) -> Response:
        """What a picture really shows."""
        require_own_site(request)
        held, body = self._there(), await self.bodies.read(request)
        try:
            name = json.loads(body)["label"]
        except (ValueError, KeyError, TypeError, RecursionError):
            name = None
        if not isinstance(name, str):
            raise Refused(400, 'send {"label": NAME} as JSON')
        return answer(await tried(held.label, request.path_params["id"], name, self._classes()))

    async def labels(self, request: Request) -> Response:
        """Many at once: a table with the columns id and label."""
        require_own_site(request)
        held, body = self._there(), await self.bodies.read(request)
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise Refused(400, "send a CSV with the columns id and label, in UTF-8") from None
        return answer({"labelled": await tried(held.labels, text, self._classes())})

    def _there(self) -> Captures:
        if self.captures is None:
            raise errors.captures_are_off()
        return self.captures

    def _classes(self) -> list[str]:
        """Of all models."""
        held = self.models.held.values()
        return [*dict.fromkeys(name for model in held for name in model.current.bundle.classes)]


async def tried(what: Callable[..., Any], *values: Any) -> Any:
    """What the captures say, apart from those who wait for answers."""
    try:
        return await asyncio.to_thread(what, *values)
    except Unknown as error:
        raise errors.capture_is_unknown(error) from None
    except ValueError as error:
        raise Refused(400, str(error), "capture") from None
    except OSError as error:
        raise errors.captures_are_away(error) from error
