"""HTTP server in a thread: shared ports, start and end, and clients that keep their connection meanwhile."""

import asyncio
import errno
import os
import resource
import socket
import threading
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest
import uvicorn

from services.http.server import (
    GracefulServer,
    HttpServer,
    bind_shared_socket,
    choose_high_fd,
    move_to_high_fd,
    require_unused_port,
)
from services.http.timeout_protocol import TimeoutHttpProtocol
from tests.support.errors import raises_code
from tests.support.http_connections import RawConnection
from tests.support.stepped_loop import run_pending, run_stepped, wait_for

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
CLOSE_SECONDS = 20.0


class GatedApp:
    """Application that answers `ok` at once, and /slow when its gate is opened."""

    def __init__(self, loop=None):
        self.loop = loop
        self.gate, self.is_waiting = threading.Event(), threading.Event()

    async def __call__(self, scope, receive, send):
        if scope["path"] == "/slow":
            self.is_waiting.set()
            await asyncio.to_thread(self.gate.wait)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def limit_descriptors(limit):
    """Let the process have so many file descriptors."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, max(limit, before[1])))
    except (ValueError, OSError):
        pytest.skip(f"the process may not have {limit} file descriptors")
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def server():
    http_server = HttpServer("127.0.0.1", 0)
    yield http_server
    http_server.close(CLOSE_SECONDS)
    http_server.socket.close()


def connect(server):
    return closing(HTTPConnection("127.0.0.1", server.port, timeout=CLOSE_SECONDS))


def start_app(server):
    server.port = server.socket.getsockname()[1]
    return server.start(GatedApp)


def send_get(connection, path="/"):
    connection.request("GET", path)
    reply = connection.getresponse()
    assert (reply.status, reply.read()) == (200, b"ok")
    return reply


def test_replicas_of_a_machine_share_a_port():
    with bind_shared_socket("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with bind_shared_socket("127.0.0.1", port) as second:
            assert second.getsockname() == ("127.0.0.1", port)
            assert first.family == second.family == socket.AF_INET
            assert first.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)  # so that a restart need not wait


def test_port_of_another_program_is_refused():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = "{}:{}".format(*other.getsockname())
        with raises_code("port-in-use", address, os.strerror(errno.EADDRINUSE), "choose another"):
            bind_shared_socket(*other.getsockname())


def test_port_of_a_service_that_would_share_it_is_refused_to_a_new_one():
    with bind_shared_socket("127.0.0.1", 0) as first:
        first.listen()
        with raises_code("port-in-use", "choose another"):
            require_unused_port(*first.getsockname())
        host, port = first.getsockname()
    require_unused_port(host, port)


def test_address_of_another_machine_is_refused():
    with raises_code("address-unusable", "192.0.2.1:8000"):
        bind_shared_socket("192.0.2.1", 8000)


def test_address_with_colons_is_of_version_6():
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").read_text():
        pytest.skip("this machine has no IPv6")
    with bind_shared_socket("::1", 0) as bound:
        assert bound.family == socket.AF_INET6


@pytest.mark.parametrize(("limit", "expected"), [(4096, 4032), (262_144, 65_472)])
def test_listening_socket_has_the_highest_descriptor_but_64(limit, expected):
    with limit_descriptors(limit), socket.socket() as low:
        low.bind(("127.0.0.1", 0))
        address = low.getsockname()
        with move_to_high_fd(low) as moved:
            assert moved.fileno() == expected and moved.getsockname() == address
            assert low.fileno() == -1 and not moved.get_inheritable()


@pytest.mark.parametrize(
    ("limit", "descriptor"), [(1024, 960), (65_536, 65_472), (1 << 20, 65_472), (resource.RLIM_INFINITY, 65_472)]
)
def test_descriptor_of_the_listening_socket_is_bounded(limit, descriptor):
    assert choose_high_fd(limit) == descriptor


def test_server_answers_from_its_own_thread_and_event_loop(server, caplog):
    assert not server.is_alive
    with caplog.at_level("INFO"):
        app = start_app(server)
        assert server.is_alive and server.thread.daemon and server.thread is not threading.current_thread()
        assert type(app.loop).__module__.startswith("uvloop")
        with connect(server) as connection:
            for _ in range(3):
                reply = send_get(connection)
                assert "server" not in reply.headers and "connection" not in reply.headers
        server.close(CLOSE_SECONDS)
    assert not server.is_alive
    assert [record for record in caplog.records if record.name == "uvicorn.access"] == []


def test_port_is_closed_until_the_application_exists(server):
    port = server.socket.getsockname()[1]

    def create_app(loop):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        return GatedApp(loop)

    assert isinstance(server.start(create_app), GatedApp)
    socket.create_connection(("127.0.0.1", port)).close()


def test_failure_to_create_the_application_reaches_the_caller(server):
    def create_app(loop):
        raise LookupError("no model")

    with pytest.raises(LookupError, match="no model"):
        server.start(create_app)
    server.thread.join(CLOSE_SECONDS)
    assert not server.is_alive


def test_closing_waits_for_requests_in_progress(server):
    app, statuses = start_app(server), []

    def send_slow():
        with connect(server) as connection:
            statuses.append(send_get(connection, "/slow").status)

    client = threading.Thread(target=send_slow)
    client.start()
    assert app.is_waiting.wait(CLOSE_SECONDS)
    server.close(0.0)
    assert server.is_alive and not statuses
    app.gate.set()
    server.close(CLOSE_SECONDS)
    client.join(CLOSE_SECONDS)
    assert not server.is_alive and statuses == [200]


def test_closing_a_server_that_was_not_started_returns():
    server = HttpServer("127.0.0.1", 0)
    server.close(CLOSE_SECONDS)
    assert not server.is_alive
    server.socket.close()


def run_closing_server(use_client):
    """Run a coroutine function with a client of a server that begins to close, on a clock that stands still."""

    async def main():
        loop, listener = asyncio.get_running_loop(), bind_shared_socket("127.0.0.1", 0)
        listener.listen()
        address = listener.getsockname()
        options = {"ws": "none", "lifespan": "off", "log_config": None, "access_log": False}
        server = GracefulServer(uvicorn.Config(GatedApp(), http=TimeoutHttpProtocol, **options))
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup(sockets=[listener])
        _, client = await loop.create_connection(RawConnection, *address)
        head, _ = await client.request(GET)
        assert "connection: close" not in head
        closing_server = asyncio.create_task(server.shutdown(sockets=[listener]))
        await run_pending()
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(RawConnection, *address)
        await use_client(client, closing_server)

    run_stepped(main())


def test_kept_connection_ends_with_the_next_response():
    async def use_client(client, closing_server):
        loop = asyncio.get_running_loop()
        await loop.advance(1.0)
        assert not client.is_closed and not closing_server.done()
        head, body = await client.request(GET)
        assert "connection: close" in head and body == b"ok"
        assert await client.read_to_end() == b""
        for _ in range(100):
            await loop.advance(0.1)
        await closing_server

    run_closing_server(use_client)


def test_idle_connection_is_closed_two_seconds_after_the_server_begins_to_close():
    async def use_client(client, closing_server):
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not client.is_closed and loop.time() < began + 4:
            await loop.advance(0.01)
        assert loop.time() - began == pytest.approx(2.0, abs=0.06)
        for _ in range(100):
            await loop.advance(0.1)
        await wait_for(closing_server.done)

    run_closing_server(use_client)
