"""Replies: JSON without numbers that JSON does not have, also to those who are still sending."""

import json
import zlib
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.http.request_body import drain_body

MIN_COMPRESSED_BYTES = 1024  # bytes of a body that are sent as they are


def dump_json(content: Any) -> bytes:
    """JSON, short."""
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON as a reply."""
    return Response(dump_json(content), status, headers, "application/json")


def compress_response(response: Response, request: Request) -> Response:
    """The reply, in fewer bytes if the client takes them and they are worth the work."""
    body = bytes(response.body)
    taken = request.headers.get("accept-encoding", "")
    if len(body) < MIN_COMPRESSED_BYTES:
        return response
    for name, bits in (("gzip", zlib.MAX_WBITS | 16), ("deflate", zlib.MAX_WBITS)):
        if name in taken:
            machine = zlib.compressobj(1, wbits=bits)
            response.body = machine.compress(body) + machine.flush()
            response.headers["content-encoding"] = name
            response.headers["content-length"] = str(len(response.body))
            break
    return response


class EarlyResponse(Response):
    """An answer to a request that may still be on its way: said at once, and what still comes is let go by."""

    def __init__(self, request: Request, content: Any, status: int, headers: dict[str, str]) -> None:
        # what still comes of the body would be taken for the next request
        super().__init__(dump_json(content), status, headers | {"connection": "close"}, "application/json")
        self.request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Say it, then read on for a while."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await drain_body(self.request)
        await send({"type": "http.response.body", "body": b""})
