"""uvicorn's HTTP protocol with an end to its patience: with heads, with what trails a body, with those who do not read.

A body's time and size are the application's matter, which is only called once the head is there.
"""

import asyncio
import json
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from services.http import errors

HEAD_BYTES = 32 << 10
HEAD_SECONDS = 10.0
WRITE_SECONDS = 30.0
MOST_REQUESTS = 1000  # of one connection: its client connects anew, perhaps to a replica that has less to do


class Patience(HttpToolsProtocol):
    """One connection."""

    idle_bytes = 0
    """since the last part of a body, or the last whole head"""
    requests = 0
    timer: asyncio.TimerHandle | None = None
    unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is waited for any more."""
        self._stop()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a head, or of what may follow a body, are counted; those of a body are not kept here."""
        self.idle_bytes += len(data)
        super().data_received(data)
        if self.idle_bytes > HEAD_BYTES and self.timer is None:  # behind a body: its reply is there or on its way
            self.transport.close()
        elif self.idle_bytes > HEAD_BYTES:
            self._refuse(errors.head_is_too_large(HEAD_BYTES))
        elif self.timer is None and (self.cycle is None or self.cycle.response_complete):
            self._wait()  # uvicorn has just stopped to: what came may be the rest of an old request, or nothing

    def on_body(self, body: bytes) -> None:
        """A part of a body."""
        self.idle_bytes = 0
        super().on_body(body)

    def pause_writing(self) -> None:
        """The client does not read what is written."""
        super().pause_writing()
        self.unread = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """It does again."""
        if self.unread is not None:
            self.unread.cancel()
            self.unread = None
        super().resume_writing()

    def on_message_begin(self) -> None:
        """The next head on a connection that is kept."""
        super().on_message_begin()
        if self.timer is None:
            self._wait()

    def on_headers_complete(self) -> None:
        """It is there."""
        self._stop()
        self.idle_bytes = 0
        super().on_headers_complete()
        self.requests += 1
        if self.requests >= MOST_REQUESTS and self.cycle is not None:
            self.cycle.keep_alive = False  # which its reply says

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is told so in JSON too."""
        self._stop()
        self._refuse(errors.not_http())

    def _wait(self) -> None:
        self.timer = self.loop.call_later(HEAD_SECONDS, self._late)

    def _stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _late(self) -> None:
        self.timer = None
        self._refuse(errors.head_is_slow(HEAD_SECONDS))

    def _refuse(self, refused: errors.Refused) -> None:
        """Say why, and hang up."""
        self._stop()
        if self.transport.is_closing():
            return
        body = json.dumps({"error": refused.sentence}).encode()
        head = f"HTTP/1.1 {refused.status} {HTTPStatus(refused.status).phrase}\r\ncontent-type: application/json\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        self.transport.close()
