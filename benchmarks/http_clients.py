"""Clients that cost little themselves: one thread, connections that are kept, the next request after a reply."""

import itertools
import re
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.ray_cluster import descendants

WARM_UP = 0.5  # seconds
LAST = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass
class Burst:
    """What some clients saw in a stretch of time."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    """of replies with 200"""
    times: list[float] = field(default_factory=list)
    """of those, by the clock"""
    statuses: dict[int, int] = field(default_factory=dict)
    again: int = 0
    """requests tried once more after their connection broke"""
    lost: int = 0
    """requests of which the second try broke too"""
    cpu: float = 0.0
    """seconds of the server's"""

    @property
    def rate(self) -> float:
        """Good replies a second."""
        return len(self.latencies) / self.seconds

    @property
    def cost(self) -> float:
        """The server's CPU milliseconds a request."""
        return 1000 * self.cpu / max(sum(self.statuses.values()), 1)

    @property
    def gap(self) -> float:
        """The longest time without a good reply."""
        return max(later - earlier for earlier, later in itertools.pairwise(self.times))

    def quantile(self, share: float) -> float:
        """Of the latencies, in seconds."""
        ordered = sorted(self.latencies)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


@dataclass
class Client:
    """One of them."""

    come: bytes = b""
    started: float = 0.0
    broken: bool = False
    """whether this request is a second try"""


def request(path: str, body: bytes, kind: str, **headers: str) -> bytes:
    """As it goes over the wire."""
    told = {"host": "127.0.0.1", "content-type": kind, "content-length": str(len(body))} | headers
    lines = [f"POST {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in told.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def burst(
    port: int,
    asked: bytes,
    at_a_time: int,
    seconds: float = 0.0,
    ended: Callable[[], bool] | None = None,
    pause: float = 0,
    roots: Sequence[int] = (),
) -> Burst:
    """So many clients for so long, or until it has `ended`; those told 429 wait for `pause` seconds.

    `roots`: processes whose CPU time is taken, with that of all below them.
    """
    waiting = selectors.EpollSelector()
    clients: dict[socket.socket, Client] = {}
    later: deque[tuple[float, socket.socket, bool]] = deque()
    seen, kept = Burst(), Burst()  # the first moments go to connecting

    def begin(client: Client) -> None:
        one = socket.create_connection(("127.0.0.1", port))
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        waiting.register(one, selectors.EVENT_READ)
        clients[one] = client
        one.sendall(asked)

    def leave(one: socket.socket) -> Client:
        waiting.unregister(one)
        one.close()
        return clients.pop(one)

    def broke(one: socket.socket) -> None:
        client = leave(one)
        seen.again += not client.broken
        seen.lost += client.broken
        begin(Client(started=client.started, broken=not client.broken))

    def follow(one: socket.socket, last: bool) -> None:
        if last:
            leave(one)
            begin(Client(started=time.perf_counter()))
            return
        clients[one] = Client(started=time.perf_counter())
        try:
            one.sendall(asked)
        except OSError:
            broke(one)

    def read(one: socket.socket) -> None:
        client = clients[one]
        try:
            some = one.recv(1 << 16)
        except OSError:
            some = b""
        if not some:
            broke(one)
            return
        client.come += some
        if not (status := whole(client.come)):
            return
        seen.statuses[status] = seen.statuses.get(status, 0) + 1
        if status == 200:
            seen.times.append(time.perf_counter())
            seen.latencies.append(seen.times[-1] - client.started)
        last = LAST.search(client.come.partition(b"\r\n\r\n")[0]) is not None
        if status == 429 and pause:
            later.append((time.perf_counter() + pause, one, last))
        else:
            follow(one, last)

    for _ in range(at_a_time):
        begin(Client(started=time.perf_counter()))
    begun = time.perf_counter() + WARM_UP
    while not ended() if ended else time.perf_counter() - begun < seconds:
        if seen is not kept and time.perf_counter() > begun:
            seen, kept.cpu = kept, -cpu_seconds(roots)
        for key, _ in waiting.select(0.05):
            read(key.fileobj)  # type: ignore[arg-type]
        while later and later[0][0] < time.perf_counter():
            follow(*later.popleft()[1:])
    kept.seconds, kept.cpu = time.perf_counter() - begun, kept.cpu + cpu_seconds(roots)
    for one in list(clients):
        leave(one)
    return kept


def whole(reply: bytes) -> int:
    """The status of a reply that is there to its end, or 0."""
    head, end, body = reply.partition(b"\r\n\r\n")
    if not end:
        return 0
    length = LENGTH.search(head)
    done = len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n")
    return int(head[9:12]) if done else 0


def cpu_seconds(roots: Sequence[int]) -> float:
    """User and system time of processes and of all below them."""
    found = 0
    for pid in {pid for root in roots for pid in descendants(root)}:
        stat = Path(f"/proc/{pid}/stat")
        try:
            user, system, of_dead, of_dead_system = stat.read_text().rpartition(")")[2].split()[11:15]
        except OSError:  # it ended meanwhile
            continue
        found += int(user) + int(system) + int(of_dead) + int(of_dead_system)
    return found / 100
