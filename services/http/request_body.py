"""Read request bodies within limits, and extract the image by content type."""

import asyncio
import base64
import zlib
from collections.abc import AsyncGenerator

from python_multipart.exceptions import FormParserError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from services.http.errors import (
    RequestRejected,
    body_is_slow,
    body_is_too_large,
    content_type_is_unknown,
    encoding_is_unknown,
    too_much_is_sent,
    unpacked_body_is_too_large,
)
from services.http.tensor_codec import parse_json_object
from services.http.timeout_protocol import BODY_HAS_ARRIVED
from services.limits import Limits

BODY_DRAIN_SECONDS = 5.0  # a rejected body is read for so long, so that the client gets to read the rejection


class BodyReader:
    """Reader of the request bodies of a replica, with a limit on the memory that all of them take together."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.bytes_in_flight = 0

    async def read_body(self, request: Request) -> bytes:
        """Read and decompress the body of a request."""
        declared = request.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > self.limits.body_bytes:
            raise body_is_too_large(self.limits.body_bytes)
        state = request.scope["state"]
        if state.get(BODY_HAS_ARRIVED):
            body = await self._receive_body(request)
        else:
            try:
                async with asyncio.timeout(self.limits.read_seconds):
                    body = await self._receive_body(request)
            except TimeoutError:
                raise body_is_slow(self.limits.read_seconds) from None
        state["read"] = True  # otherwise a rejection would wait for the rest
        return decompress_body(body, request.headers.get("content-encoding"), self.limits.body_bytes)

    async def _receive_body(self, request: Request) -> bytes:
        """Receive all parts of a body, within the limits on their bytes."""
        parts: list[bytes] = []
        size, is_incomplete = 0, True
        try:
            while is_incomplete:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                part, is_incomplete = message.get("body", b""), message.get("more_body", False)
                size += len(part)
                self.bytes_in_flight += len(part)
                if size > self.limits.body_bytes:
                    raise body_is_too_large(self.limits.body_bytes)
                if self.bytes_in_flight > self.limits.bodies_bytes:
                    raise too_much_is_sent()
                parts.append(part)
        finally:
            self.bytes_in_flight -= size
        return parts[0] if len(parts) == 1 else b"".join(parts)


async def drain_body(request: Request) -> None:
    """Read and discard the rest of a rejected body, for `BODY_DRAIN_SECONDS` at most."""
    try:
        async with asyncio.timeout(BODY_DRAIN_SECONDS):
            while True:
                message = await request.receive()
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return
    except TimeoutError:
        return


def decompress_body(body: bytes, encoding: str | None, max_bytes: int) -> bytes:
    """Decompress a body; reject one that decompresses to more than `max_bytes`."""
    if encoding in (None, "", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise encoding_is_unknown(encoding)
    decompressor = zlib.decompressobj(zlib.MAX_WBITS | (16 if encoding == "gzip" else 0))
    try:
        decompressed = decompressor.decompress(body, max_bytes + 1)
        if len(decompressed) > max_bytes:
            raise unpacked_body_is_too_large(max_bytes)
        decompressed += decompressor.flush()
    except zlib.error as error:
        raise RequestRejected(400, f"the body cannot be decompressed as {encoding} ({error})") from None
    if not decompressor.eof or decompressor.unused_data:
        raise RequestRejected(400, f"the {encoding} body is truncated, or other data follows it")
    return decompressed


async def extract_image(request: Request, body: bytes) -> bytes:
    """Return the encoded image in a body: the body itself, a form's file, or base64 in JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind.startswith("image/") or kind in ("application/octet-stream", "application/x-www-form-urlencoded", ""):
        image = body  # curl sends x-www-form-urlencoded unless another type is given
    elif kind == "multipart/form-data":
        image = await read_upload(request, body)
    elif kind == "application/json":
        image = decode_base64(parse_json_object(body).get("image"))
    else:
        raise content_type_is_unknown(kind)
    if not image:
        raise RequestRejected(400, "the request holds no image")
    return image


def decode_base64(text: object) -> bytes:
    """Decode base64 text from JSON to bytes."""
    if not isinstance(text, str):
        raise RequestRejected(400, 'the JSON must be {"image": "..."} with the image in base64')
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:  # binascii.Error, or a text that is not ASCII
        raise RequestRejected(400, f"image is not base64 ({error})") from None


async def read_upload(request: Request, body: bytes) -> bytes:
    """Return the content of the one file in a multipart form."""

    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    try:
        form = await MultiPartParser(request.headers, stream(), max_files=1, max_fields=8).parse()
    except (MultiPartException, FormParserError, ClientDisconnect, UnicodeError, LookupError) as error:
        raise RequestRejected(400, f"the multipart form cannot be read ({str(error)[:120]})") from None
    files = [value for value in form.values() if isinstance(value, UploadFile)]
    if not files:
        raise RequestRejected(400, "the form holds no file: send the image as a file")
    content = await files[0].read()
    await form.close()
    return content
