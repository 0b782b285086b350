"""uvicorn's HTTP protocol with limits on slow or oversized heads, data after a body, and clients that do not read.

A request's head is its request line and headers. Time and size of a body are limited by the application, which is
called only once the head is complete.
"""

import asyncio
import json
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from services.http.errors import RequestRejected, head_is_slow, head_is_too_large, not_http
from services.http.head_buffer import HeadBufferingTransport

MAX_HEAD_BYTES = 32 << 10
HEAD_TIMEOUT_SECONDS = 10.0
WRITE_TIMEOUT_SECONDS = 30.0
BODY_HAS_ARRIVED = "body_has_arrived"  # key in the state of a request whose whole body is here
OPEN_REQUESTS = "open_requests"  # key in the state of a request: the tasks of all requests that are being answered
MAX_REQUESTS_PER_CONNECTION = 1000  # then the client must reconnect, perhaps to a replica that has less to do


class TimeoutHttpProtocol(HttpToolsProtocol):
    """Protocol of one connection, with timers for the head and for writing."""

    bytes_since_progress = 0
    """bytes received since the last part of a body or the last complete head"""
    is_head_incomplete = False
    num_requests = 0
    head_timer: asyncio.TimerHandle | None = None
    write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Start the timer for the first head."""
        super().connection_made(HeadBufferingTransport(transport))  # type: ignore[arg-type]
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel both timers."""
        self._cancel_head_timer()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the bytes received outside of bodies; close the connection above `MAX_HEAD_BYTES`."""
        self.bytes_since_progress += len(data)
        super().data_received(data)
        if self.bytes_since_progress > MAX_HEAD_BYTES and self.head_timer is None:
            self.transport.close()  # the bytes follow a body, whose response is sent or being sent
        elif self.bytes_since_progress > MAX_HEAD_BYTES:
            self._reject_and_close(head_is_too_large(MAX_HEAD_BYTES))
        elif self.head_timer is None and (
            self.is_head_incomplete or self.cycle is None or self.cycle.response_complete
        ):
            # uvicorn has just stopped its own timer: these bytes may also be the rest of an old request, or nothing
            self._start_head_timer()

    def on_body(self, body: bytes) -> None:
        """Count a part of a body as progress."""
        self.bytes_since_progress = 0
        super().on_body(body)

    def pause_writing(self) -> None:
        """Start the write timer: the client does not read what is written."""
        super().pause_writing()
        self.write_timer = self.loop.call_later(WRITE_TIMEOUT_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the write timer: the client reads again."""
        if self.write_timer is not None:
            self.write_timer.cancel()
            self.write_timer = None
        super().resume_writing()

    def on_message_begin(self) -> None:
        """Note that a head has begun: a timer runs if the rest of it does not arrive at once."""
        super().on_message_begin()
        self.is_head_incomplete = True

    def on_headers_complete(self) -> None:
        """Cancel the head timer; after `MAX_REQUESTS_PER_CONNECTION` end the connection with this request."""
        self._cancel_head_timer()
        self.is_head_incomplete = False
        self.bytes_since_progress = 0
        self.scope["state"][OPEN_REQUESTS] = self.tasks
        super().on_headers_complete()
        self.num_requests += 1
        if self.num_requests >= MAX_REQUESTS_PER_CONNECTION and self.cycle is not None:
            self.cycle.keep_alive = False  # the response says so

    def on_response_complete(self) -> None:
        """Write the head of a response without a body."""
        self.transport.flush()  # type: ignore[attr-defined]
        super().on_response_complete()

    def on_message_complete(self) -> None:
        """Note that the whole body has arrived: reading it needs no time limit."""
        self.scope["state"][BODY_HAS_ARRIVED] = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP with a 400 in JSON, like any other rejection."""
        self._cancel_head_timer()
        self._reject_and_close(not_http())

    def _start_head_timer(self) -> None:
        self.head_timer = self.loop.call_later(HEAD_TIMEOUT_SECONDS, self._on_head_timeout)

    def _cancel_head_timer(self) -> None:
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None

    def _on_head_timeout(self) -> None:
        self.head_timer = None
        self._reject_and_close(head_is_slow(HEAD_TIMEOUT_SECONDS))

    def _reject_and_close(self, rejection: RequestRejected) -> None:
        """Write the rejection as JSON and close the connection."""
        self._cancel_head_timer()
        if self.transport.is_closing():
            return
        body = json.dumps({"error": rejection.message}).encode()
        head = (
            f"HTTP/1.1 {rejection.status} {HTTPStatus(rejection.status).phrase}\r\ncontent-type: application/json\r\n"
        )
        self.transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        self.transport.close()
