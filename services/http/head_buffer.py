"""Transport that sends the head of a response together with the beginning of its body, in one packet."""

import asyncio
from typing import Any


class HeadBufferingTransport:
    """Transport of a connection that holds back the head of a response until its body, an empty one included.

    uvicorn writes both by themselves, which costs a system call more and wakes the client twice.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.is_closing = transport.is_closing  # asked for at every response
        self.head = b""

    def __getattr__(self, name: str) -> Any:
        """Return what the real transport has."""
        return getattr(self.transport, name)

    def write(self, data: bytes) -> None:
        """Write data, or hold it back if it is the head of a final response."""
        if not self.head and data.endswith(b"\r\n\r\n") and data.startswith(b"HTTP/1.1 ") and data[9:10] != b"1":
            self.head = data
            return
        self.transport.write(self.head + data)
        self.head = b""

    def flush(self) -> None:
        """Write a head that is held back: the response has no body."""
        if self.head:
            self.write(b"")

    def close(self) -> None:
        """Close the connection once everything is written."""
        self.flush()
        self.transport.close()
