"""HTTP server in a thread of its own, on a port that several processes of a machine share."""

import asyncio
import errno
import fcntl
import os
import resource
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import uvicorn

from equipoise.errors import EquipoiseError
from services.http.timeout_protocol import TimeoutHttpProtocol

LISTEN_BACKLOG = 1024
KEEP_ALIVE_GRACE_SECONDS = 2.0  # for one more request on each keep-alive connection, answered with connection: close
MAX_DESCRIPTORS = 1 << 16  # the kernel's table of descriptors grows with the highest
SPARE_DESCRIPTORS = 64  # file descriptors kept free above that of the listening socket


def bind_shared_socket(host: str, port: int) -> socket.socket:
    """Bind a socket to a port that other replicas on this machine may share; the kernel distributes connections."""
    return move_to_high_fd(bind_socket(host, port, is_shared=True))


def require_unused_port(host: str, port: int) -> None:
    """Refuse a port on which anyone listens, a service that would share it included."""
    bind_socket(host, port, is_shared=False).close()


def bind_socket(host: str, port: int, is_shared: bool) -> socket.socket:
    """Bind a socket to a port; refuse a port that another program has, or any other one if it is not shared."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, is_shared)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        code = "port-in-use" if error.errno == errno.EADDRINUSE else "address-unusable"
        problem = f"cannot listen on {host}:{port} ({error.strerror})"
        raise EquipoiseError(code, problem, "choose another host or port") from None
    return listener


def move_to_high_fd(listening_socket: socket.socket) -> socket.socket:
    """Return the socket under a high file descriptor, and close the old one.

    Linux closes the descriptors of a killed process from the highest number down. The listening socket must be closed
    before its connections: a client that retries a broken connection would otherwise be sent here again.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    moved = fcntl.fcntl(listening_socket.fileno(), fcntl.F_DUPFD_CLOEXEC, choose_high_fd(limit))
    listening_socket.close()
    return socket.socket(fileno=moved)


def choose_high_fd(limit: int) -> int:
    """Return the descriptor of a listening socket in a process that may have `limit` of them; -1 is no limit."""
    return (min(limit, MAX_DESCRIPTORS) if limit > 0 else MAX_DESCRIPTORS) - SPARE_DESCRIPTORS


class GracefulServer(uvicorn.Server):
    """uvicorn server that lets keep-alive clients finish before it closes their connections."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and end each connection with its next response."""
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()
        self.server_state.default_headers.append((b"connection", b"close"))
        for _ in range(round(KEEP_ALIVE_GRACE_SECONDS / 0.05)):
            if not self.server_state.connections:
                break
            await asyncio.sleep(0.05)
        await super().shutdown(sockets)


class HttpServer:
    """Server of an ASGI application in a thread of its own, until it is closed."""

    def __init__(self, host: str, port: int, certfile: str | None = None, keyfile: str | None = None) -> None:
        self.socket = bind_shared_socket(host, port)
        self.tls_options: dict[str, Any] = {"ssl_certfile": certfile, "ssl_keyfile": keyfile}
        self.server: uvicorn.Server | None = None
        self.thread: threading.Thread | None = None

    def start(self, create_app: Callable[[asyncio.AbstractEventLoop], Any]) -> Any:
        """Create the application inside the server's event loop, serve it, and return it."""
        started_app: Future[Any] = Future()
        self.thread = threading.Thread(
            target=self._run_server, args=(create_app, started_app), name="http", daemon=True
        )
        self.thread.start()
        return started_app.result()

    @property
    def is_alive(self) -> bool:
        """Return whether the server thread is running."""
        return self.thread is not None and self.thread.is_alive()

    def close(self, timeout_seconds: float) -> None:
        """Accept no more connections, and wait up to `timeout_seconds` for the requests in progress."""
        if self.server is not None:
            self.server.should_exit = True
        if self.thread is not None:
            self.thread.join(timeout_seconds)

    def _run_server(self, create_app: Callable[[asyncio.AbstractEventLoop], Any], started_app: "Future[Any]") -> None:
        async def serve() -> None:
            try:
                app = create_app(asyncio.get_running_loop())
                # not before: the kernel would send requests here that nobody accepts yet
                self.socket.listen(LISTEN_BACKLOG)
            except BaseException as error:
                started_app.set_exception(error)
                return
            config = uvicorn.Config(
                app,
                http=TimeoutHttpProtocol,
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=bool(os.environ.get("FORWARDED_ALLOW_IPS")),  # uvicorn's variable: proxies it trusts
                **self.tls_options,
            )
            self.server = GracefulServer(config)
            started_app.set_result(app)
            await self.server.serve(sockets=[self.socket])

        with asyncio.Runner(loop_factory=create_event_loop) as runner:
            runner.run(serve())


def create_event_loop() -> asyncio.AbstractEventLoop:
    """Create a uvloop event loop; uvloop is imported only here."""
    import uvloop

    return uvloop.new_event_loop()
