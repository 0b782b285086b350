"""Bodies of requests: read within limits, and taken apart by what they say they are."""

import asyncio
import base64
import binascii
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
from services.limits import Limits

BODY_DRAIN_SECONDS = 5.0  # how long what nobody wants is still read, so that the client comes to read its refusal


class BodyReader:
    """Reads the bodies of all requests of a replica, which together may take so much memory and no more."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.bytes_in_flight = 0

    async def read_body(self, request: Request) -> bytes:
        """The body of a request, unpacked."""
        declared = request.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > self.limits.body_bytes:
            raise body_is_too_large(self.limits.body_bytes)
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.limits.read_seconds):
                async for part in request.stream():
                    size += len(part)
                    self.bytes_in_flight += len(part)
                    if size > self.limits.body_bytes:
                        raise body_is_too_large(self.limits.body_bytes)
                    if self.bytes_in_flight > self.limits.bodies_bytes:
                        raise too_much_is_sent()
                    parts.append(part)
        except TimeoutError:
            raise body_is_slow(self.limits.read_seconds) from None
        finally:
            self.bytes_in_flight -= size
        request.state.read = True  # else a refusal waits for the rest
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        return decompress_body(body, request.headers.get("content-encoding"), self.limits.body_bytes)


async def drain_body(request: Request) -> None:
    """Let go by what still comes of a body that was refused."""
    try:
        async with asyncio.timeout(BODY_DRAIN_SECONDS):
            while True:
                message = await request.receive()
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return
    except TimeoutError:
        return


def decompress_body(body: bytes, encoding: str | None, max_bytes: int) -> bytes:
    """A body without its compression, which may not hide more than `most` bytes."""
    if encoding in (None, "", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise encoding_is_unknown(encoding)
    machine = zlib.decompressobj(zlib.MAX_WBITS | (16 if encoding == "gzip" else 0))
    try:
        found = machine.decompress(body, max_bytes + 1)
        if len(found) > max_bytes:
            raise unpacked_body_is_too_large(max_bytes)
        found += machine.flush()
    except zlib.error as error:
        raise RequestRejected(400, f"the body is not {encoding} ({error})") from None
    if not machine.eof or machine.unused_data:
        raise RequestRejected(400, f"the body is not whole {encoding}")
    return found


async def extract_image(request: Request, body: bytes) -> bytes:
    """The encoded picture in a body: as it is, in a form, or in JSON as base64."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind.startswith("image/") or kind in ("application/octet-stream", "application/x-www-form-urlencoded", ""):
        found = body  # curl says x-www-form-urlencoded of everything that it is not told of
    elif kind == "multipart/form-data":
        found = await read_upload(request, body)
    elif kind == "application/json":
        found = decode_base64(parse_json_object(body).get("image"))
    else:
        raise content_type_is_unknown(kind)
    if not found:
        raise RequestRejected(400, "the request holds no picture")
    return found


def decode_base64(text: object) -> bytes:
    """Base64 as bytes."""
    if not isinstance(text, str):
        raise RequestRejected(400, 'JSON must be {"image": "..."} with the picture in base64')
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestRejected(400, f"image is not base64 ({error})") from None


async def read_upload(request: Request, body: bytes) -> bytes:
    """The one file of a form."""

    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    try:
        form = await MultiPartParser(request.headers, stream(), max_files=1, max_fields=8).parse()
    except (MultiPartException, FormParserError, ClientDisconnect, UnicodeError, LookupError) as error:
        raise RequestRejected(400, f"the form cannot be read ({str(error)[:120]})") from None
    files = [value for value in form.values() if isinstance(value, UploadFile)]
    if not files:
        raise RequestRejected(400, "the form holds no file: send the picture as one")
    found = await files[0].read()
    await form.close()
    return found
