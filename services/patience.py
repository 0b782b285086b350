"""uvicorn's HTTP protocol with an end to its patience: a request's head must be there in time, and be short.

A body's time and size are the application's matter, which is only called once the head is there.
"""

import asyncio
import json
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 32 << 10
HEAD_SECONDS = 10.0
MOST_REQUESTS = 1000  # of one connection: its client connects anew, perhaps to a replica that has less to do


class Patience(HttpToolsProtocol):
    """One connection."""

    head_bytes = 0
    requests = 0
    timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is waited for any more."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a head are counted; those of a body are not kept here."""
        if self.timer is not None:
            self.head_bytes += len(data)
        super().data_received(data)
        if self.timer is not None and self.head_bytes > HEAD_BYTES:
            self._refuse(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the head of a request may have {HEAD_BYTES} bytes"
            )

    def on_message_begin(self) -> None:
        """The next head on a connection that is kept."""
        super().on_message_begin()
        if self.timer is None:
            self._wait()

    def on_headers_complete(self) -> None:
        """It is there."""
        self._stop()
        super().on_headers_complete()
        self.requests += 1
        if self.requests >= MOST_REQUESTS and self.cycle is not None:
            self.cycle.keep_alive = False  # which its reply says

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is told so in JSON too."""
        self._stop()
        self._refuse(HTTPStatus.BAD_REQUEST, "this is no HTTP request")

    def _wait(self) -> None:
        self.head_bytes = 0
        self.timer = self.loop.call_later(HEAD_SECONDS, self._late)

    def _stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _late(self) -> None:
        self.timer = None
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"the head of the request took over {HEAD_SECONDS:g} s to arrive")

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        """Say why, and hang up."""
        self._stop()
        if self.transport.is_closing():
            return
        body = json.dumps({"error": sentence}).encode()
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        self.transport.close()
