"""uvicorn's HTTP protocol with an end to its patience: with heads, with what trails a body, with those who do not read.

A body's time and size are the application's matter, which is only called once the head is there.
"""

import asyncio
import json
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from services.http.errors import RequestRejected, head_is_slow, head_is_too_large, not_http

MAX_HEAD_BYTES = 32 << 10
HEAD_TIMEOUT_SECONDS = 10.0
WRITE_TIMEOUT_SECONDS = 30.0
MAX_REQUESTS_PER_CONNECTION = (
    1000  # of one connection: its client connects anew, perhaps to a replica that has less to do
)


class TimeoutHttpProtocol(HttpToolsProtocol):
    """One connection."""

    bytes_since_progress = 0
    """since the last part of a body, or the last whole head"""
    num_requests = 0
    head_timer: asyncio.TimerHandle | None = None
    write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is waited for any more."""
        self._cancel_head_timer()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a head, or of what may follow a body, are counted; those of a body are not kept here."""
        self.bytes_since_progress += len(data)
        super().data_received(data)
        if (
            self.bytes_since_progress > MAX_HEAD_BYTES and self.head_timer is None
        ):  # behind a body: its reply is there or on its way
            self.transport.close()
        elif self.bytes_since_progress > MAX_HEAD_BYTES:
            self._reject_and_close(head_is_too_large(MAX_HEAD_BYTES))
        elif self.head_timer is None and (self.cycle is None or self.cycle.response_complete):
            # uvicorn has just stopped its own timer: what came may be the rest of an old request, or nothing
            self._start_head_timer()

    def on_body(self, body: bytes) -> None:
        """A part of a body."""
        self.bytes_since_progress = 0
        super().on_body(body)

    def pause_writing(self) -> None:
        """The client does not read what is written."""
        super().pause_writing()
        self.write_timer = self.loop.call_later(WRITE_TIMEOUT_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """It does again."""
        if self.write_timer is not None:
            self.write_timer.cancel()
            self.write_timer = None
        super().resume_writing()

    def on_message_begin(self) -> None:
        """The next head on a connection that is kept."""
        super().on_message_begin()
        if self.head_timer is None:
            self._start_head_timer()

    def on_headers_complete(self) -> None:
        """It is there."""
        self._cancel_head_timer()
        self.bytes_since_progress = 0
        super().on_headers_complete()
        self.num_requests += 1
        if self.num_requests >= MAX_REQUESTS_PER_CONNECTION and self.cycle is not None:
            self.cycle.keep_alive = False  # which its reply says

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is told so in JSON too."""
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

    def _reject_and_close(self, refused: RequestRejected) -> None:
        """Say why, and hang up."""
        self._cancel_head_timer()
        if self.transport.is_closing():
            return
        body = json.dumps({"error": refused.message}).encode()
        head = f"HTTP/1.1 {refused.status} {HTTPStatus(refused.status).phrase}\r\ncontent-type: application/json\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        self.transport.close()
