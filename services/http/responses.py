"""HTTP responses: strict JSON, compression, and responses to clients that are still sending."""

import json
import zlib
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.http.request_body import drain_body

MIN_COMPRESSED_BYTES = 1024  # shorter bodies are sent uncompressed


def dump_json(content: Any) -> bytes:
    """Encode content as compact JSON; NaN and infinities, which JSON does not have, raise ValueError."""
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Build a response with a JSON body."""
    return Response(dump_json(content), status, headers, "application/json")


def typed_response(reply: Any, status: int = 200) -> Response:
    """Build a response from one of the types of `message_types`, or a list of them."""
    return json_response(msgspec.to_builtins(reply), status)


def compress_response(response: Response, request: Request) -> Response:
    """Compress a response in place if the client accepts it and the body is long enough to be worth it."""
    body = bytes(response.body)
    accepted = request.headers.get("accept-encoding", "")
    if len(body) < MIN_COMPRESSED_BYTES:
        return response
    for name, bits in (("gzip", zlib.MAX_WBITS | 16), ("deflate", zlib.MAX_WBITS)):
        if name in accepted:
            compressor = zlib.compressobj(1, wbits=bits)
            response.body = compressor.compress(body) + compressor.flush()
            response.headers["content-encoding"] = name
            response.headers["content-length"] = str(len(response.body))
            break
    return response


class EarlyResponse(Response):
    """Response sent at once to a request that is still arriving; the rest of its body is read and discarded."""

    def __init__(self, request: Request, content: Any, status: int, headers: dict[str, str]) -> None:
        # connection: close, because the rest of the body would be taken for the next request
        super().__init__(dump_json(content), status, headers | {"connection": "close"}, "application/json")
        self.request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, then read and discard the rest of the request for `BODY_DRAIN_SECONDS`."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await drain_body(self.request)
        await send({"type": "http.response.body", "body": b""})
