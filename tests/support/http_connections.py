"""Raw connections of clients, and a server of one ASGI application in the same event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from tests.support.stepped_loop import run_pending, wait_for


class RawConnection(asyncio.Protocol):
    """Connection of a client that keeps what it receives."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.is_closed = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True

    async def send(self, data: bytes) -> None:
        """Send bytes and let the server take them."""
        self.transport.write(data)
        await run_pending()

    async def receive(self, size: int) -> bytes:
        """Wait for so many bytes and take them."""
        await wait_for(lambda: len(self.received) >= size)
        received = bytes(self.received[:size])
        del self.received[:size]
        return received

    async def request(self, data: bytes) -> tuple[str, bytes]:
        """Send a request; return the head of the response in lower case, and the body of the size that it declares."""
        await self.send(data)
        await wait_for(lambda: b"\r\n\r\n" in self.received)
        head = (await self.receive(self.received.index(b"\r\n\r\n") + 4)).decode().lower()
        size = next(line for line in head.splitlines() if line.startswith("content-length: ")).split()[1]
        return head, await self.receive(int(size))

    async def read_to_end(self) -> bytes:
        """Return everything up to the end of the connection, which the server must close."""
        await wait_for(lambda: self.is_closed)
        return bytes(self.received)


@asynccontextmanager
async def open_connection(app: Any, protocol: Callable[..., asyncio.Protocol]) -> AsyncIterator[Callable[[], Any]]:
    """Serve an application with a protocol on a free port; yield a coroutine function that connects a client."""
    loop, state, clients = asyncio.get_running_loop(), ServerState(), []
    config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None, access_log=False)
    server = await loop.create_server(lambda: protocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0)

    async def connect() -> RawConnection:
        _, client = await loop.create_connection(RawConnection, *server.sockets[0].getsockname())
        clients.append(client)
        await wait_for(lambda: len(state.connections) >= sum(not client.is_closed for client in clients))
        return client

    try:
        yield connect
    finally:
        for connection in [*clients, *state.connections]:
            connection.transport.abort()
        server.close()
        await run_pending()
