"""An HTTP server in a thread of its own, on a port that several processes of a machine share."""

import asyncio
import fcntl
import resource
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import uvicorn

from services.http.timeout_protocol import TimeoutHttpProtocol

LISTEN_BACKLOG = 1024
KEEP_ALIVE_GRACE_SECONDS = 2.0  # for clients to come back once more on connections that they keep
SPARE_DESCRIPTORS = 64  # descriptors kept free above the one that listens


def bind_shared_socket(host: str, port: int) -> socket.socket:
    """A socket for a port that other replicas on this machine may have too: the kernel deals connections out."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise ValueError(f"cannot listen on {host}:{port} ({error.strerror}): choose another host or port") from None
    return move_to_high_fd(made)


def move_to_high_fd(listening_socket: socket.socket) -> socket.socket:
    """The same socket under a high number.

    Linux closes what a killed process held from the highest number down. Whoever then tries a broken connection once
    more must find this one closed already, or the kernel sends him here again.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(most, 1 << 16) if most > 0 else 1 << 16
    moved = fcntl.fcntl(listening_socket.fileno(), fcntl.F_DUPFD_CLOEXEC, most - SPARE_DESCRIPTORS)
    listening_socket.close()
    return socket.socket(fileno=moved)


class GracefulServer(uvicorn.Server):
    """Takes its leave of those who are connected before it hangs up."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen no more; the next reply on a connection says that it is the last."""
        for server in self.servers:
            server.close()
        for one in sockets or ():
            one.close()
        self.server_state.default_headers.append((b"connection", b"close"))
        for _ in range(round(KEEP_ALIVE_GRACE_SECONDS / 0.05)):
            if not self.server_state.connections:
                break
            await asyncio.sleep(0.05)
        await super().shutdown(sockets)


class HttpServer:
    """Serves an ASGI application until it is closed, apart from the process' other work."""

    def __init__(self, host: str, port: int, certfile: str | None = None, keyfile: str | None = None) -> None:
        self.socket = bind_shared_socket(host, port)
        self.tls_options: dict[str, Any] = {"ssl_certfile": certfile, "ssl_keyfile": keyfile}
        self.server: uvicorn.Server | None = None
        self.thread: threading.Thread | None = None

    def start(self, create_app: Callable[[asyncio.AbstractEventLoop], Any]) -> Any:
        """Serve what `make` makes within the server's loop; that application."""
        made: Future[Any] = Future()
        self.thread = threading.Thread(target=self._run_server, args=(create_app, made), name="http", daemon=True)
        self.thread.start()
        return made.result()

    @property
    def is_alive(self) -> bool:
        """Whether it still serves."""
        return self.thread is not None and self.thread.is_alive()

    def close(self, timeout_seconds: float) -> None:
        """Take no more connections, and wait for the requests under way."""
        if self.server is not None:
            self.server.should_exit = True
        if self.thread is not None:
            self.thread.join(timeout_seconds)

    def _run_server(self, create_app: Callable[[asyncio.AbstractEventLoop], Any], started_app: "Future[Any]") -> None:
        async def serve() -> None:
            try:
                app = create_app(asyncio.get_running_loop())
                self.socket.listen(
                    LISTEN_BACKLOG
                )  # not before: the kernel would send requests here that nobody takes yet
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
                **self.tls_options,
            )
            self.server = GracefulServer(config)
            started_app.set_result(app)
            await self.server.serve(sockets=[self.socket])

        with asyncio.Runner(loop_factory=create_event_loop) as runner:
            runner.run(serve())


def create_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's."""
    import uvloop

    return uvloop.new_event_loop()
