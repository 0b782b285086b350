"""Replies: JSON without numbers that JSON does not have, also to those who are still sending."""

import json
import zlib
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.http import request_body as bodies

SMALL = 1024  # bytes of a body that are sent as they are


def encoded(facts: Any) -> bytes:
    """JSON, short."""
    return json.dumps(facts, allow_nan=False, separators=(",", ":")).encode()


def answer(facts: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON as a reply."""
    return Response(encoded(facts), status, headers, "application/json")


def compressed(reply: Response, request: Request) -> Response:
    """The reply, in fewer bytes if the client takes them and they are worth the work."""
    body = bytes(reply.body)
    taken = request.headers.get("accept-encoding", "")
    if len(body) < SMALL:
        return reply
    for name, bits in (("gzip", zlib.MAX_WBITS | 16), ("deflate", zlib.MAX_WBITS)):
        if name in taken:
            machine = zlib.compressobj(1, wbits=bits)
            reply.body = machine.compress(body) + machine.flush()
            reply.headers["content-encoding"] = name
            reply.headers["content-length"] = str(len(reply.body))
            break
    return reply


class Lingering(Response):
    """An answer to a request that may still be on its way: said at once, and what still comes is let go by."""

    def __init__(self, request: Request, facts: Any, status: int, headers: dict[str, str]) -> None:
        # what still comes of the body would be taken for the next request
        super().__init__(encoded(facts), status, headers | {"connection": "close"}, "application/json")
        self.request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Say it, then read on for a while."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await bodies.rest(self.request)
        await send({"type": "http.response.body", "body": b""})
