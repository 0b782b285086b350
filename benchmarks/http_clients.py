"""Load generator of little cost: one thread, persistent connections, the next request sent after a reply."""

import itertools
import re
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.ray_cluster import list_descendants

WARM_UP_SECONDS = 0.5  # seconds
CLOSE_PATTERN = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
LENGTH_PATTERN = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass
class BurstResult:
    """Replies, latencies and failures that the clients of one burst saw."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    """seconds from request to reply, of replies with status 200"""
    times: list[float] = field(default_factory=list)
    """time of each reply with status 200, by time.perf_counter"""
    statuses: dict[int, int] = field(default_factory=dict)
    retried: int = 0
    """requests sent again after their connection broke"""
    lost: int = 0
    """requests whose connection broke again on the second try"""
    cpu_seconds: float = 0.0
    """CPU time of the server processes"""

    @property
    def replies_per_second(self) -> float:
        """Return the replies with status 200 per second."""
        return len(self.latencies) / self.seconds

    @property
    def cpu_ms_per_request(self) -> float:
        """Return the CPU milliseconds of the server per request."""
        return 1000 * self.cpu_seconds / max(sum(self.statuses.values()), 1)

    @property
    def longest_gap_seconds(self) -> float:
        """Return the longest time in seconds without a reply of status 200."""
        return max(later - earlier for earlier, later in itertools.pairwise(self.times))

    def latency_quantile(self, share: float) -> float:
        """Return a quantile of the latencies, in seconds."""
        ordered = sorted(self.latencies)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


@dataclass
class ClientState:
    """State of one client: the request in progress and what has been received."""

    received: bytes = b""
    started: float = 0.0
    is_retry: bool = False
    """whether this request is sent for the second time"""


def build_request(path: str, body: bytes, content_type: str, **headers: str) -> bytes:
    """Build the bytes of an HTTP POST request as sent over the wire."""
    all_headers = {"host": "127.0.0.1", "content-type": content_type, "content-length": str(len(body))} | headers
    lines = [f"POST {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in all_headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def run_burst(
    port: int,
    message: bytes,
    client_count: int,
    seconds: float = 0.0,
    ended: Callable[[], bool] | None = None,
    pause: float = 0,
    roots: Sequence[int] = (),
) -> BurstResult:
    """Run a number of clients for some seconds or until `ended`; after a 429 they wait for `pause` seconds.

    `roots` are the processes whose CPU time is measured, including all their descendants.
    """
    selector = selectors.EpollSelector()
    clients: dict[socket.socket, ClientState] = {}
    later: deque[tuple[float, socket.socket, bool]] = deque()
    result, timed_result = BurstResult(), BurstResult()  # the first counts the warm-up, in which clients connect

    def connect(client: ClientState) -> None:
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connection, selectors.EVENT_READ)
        clients[connection] = client
        connection.sendall(message)

    def close(connection: socket.socket) -> ClientState:
        selector.unregister(connection)
        connection.close()
        return clients.pop(connection)

    def retry(connection: socket.socket) -> None:
        client = close(connection)
        result.retried += not client.is_retry
        result.lost += client.is_retry
        connect(ClientState(started=client.started, is_retry=not client.is_retry))

    def send_next(connection: socket.socket, is_last: bool) -> None:
        if is_last:
            close(connection)
            connect(ClientState(started=time.perf_counter()))
            return
        clients[connection] = ClientState(started=time.perf_counter())
        try:
            connection.sendall(message)
        except OSError:
            retry(connection)

    def receive(connection: socket.socket) -> None:
        client = clients[connection]
        try:
            data = connection.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            retry(connection)
            return
        client.received += data
        if not (status := parse_complete_status(client.received)):
            return
        result.statuses[status] = result.statuses.get(status, 0) + 1
        if status == 200:
            result.times.append(time.perf_counter())
            result.latencies.append(result.times[-1] - client.started)
        is_last = CLOSE_PATTERN.search(client.received.partition(b"\r\n\r\n")[0]) is not None
        if status == 429 and pause:
            later.append((time.perf_counter() + pause, connection, is_last))
        else:
            send_next(connection, is_last)

    for _ in range(client_count):
        connect(ClientState(started=time.perf_counter()))
    start = time.perf_counter() + WARM_UP_SECONDS
    while not ended() if ended else time.perf_counter() - start < seconds:
        if result is not timed_result and time.perf_counter() > start:
            result, timed_result.cpu_seconds = timed_result, -read_tree_cpu_seconds(roots)
        for key, _ in selector.select(0.05):
            receive(key.fileobj)  # type: ignore[arg-type]
        while later and later[0][0] < time.perf_counter():
            send_next(*later.popleft()[1:])
    timed_result.seconds, timed_result.cpu_seconds = (
        time.perf_counter() - start,
        timed_result.cpu_seconds + read_tree_cpu_seconds(roots),
    )
    for connection in list(clients):
        close(connection)
    return timed_result


def parse_complete_status(reply: bytes) -> int:
    """Return the status of a reply that has been received completely, or 0."""
    head, end, body = reply.partition(b"\r\n\r\n")
    if not end:
        return 0
    length = LENGTH_PATTERN.search(head)
    is_complete = len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n")
    return int(head[9:12]) if is_complete else 0


def read_tree_cpu_seconds(roots: Sequence[int]) -> float:
    """Return the user and system seconds of processes and all their descendants, ended children included."""
    ticks = 0
    for pid in {pid for root in roots for pid in list_descendants(root)}:
        stat = Path(f"/proc/{pid}/stat")
        try:
            user, system, child_user, child_system = stat.read_text().rpartition(")")[2].split()[11:15]
        except OSError:  # the process ended meanwhile
            continue
        ticks += int(user) + int(system) + int(child_user) + int(child_system)
    return ticks / 100
