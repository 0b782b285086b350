"""Clients that cost little themselves: one thread, connections that are kept, the next request after a reply."""

import re
import selectors
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster import descendants

LAST = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass
class Burst:
    """What some clients saw in a stretch of time."""

    seconds: float
    latencies: list[float] = field(default_factory=list)
    """of replies with 200"""
    statuses: dict[int, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Good replies a second."""
        return len(self.latencies) / self.seconds

    def quantile(self, share: float) -> float:
        """Of the latencies, in seconds."""
        ordered = sorted(self.latencies)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def request(path: str, body: bytes, kind: str, **headers: str) -> bytes:
    """As it goes over the wire."""
    told = {"host": "127.0.0.1", "content-type": kind, "content-length": str(len(body))} | headers
    lines = [f"POST {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in told.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def burst(port: int, asked: bytes, at_a_time: int, seconds: float) -> Burst:
    """So many clients for so long; those that are refused ask again at once."""
    waiting = selectors.EpollSelector()
    started: dict[socket.socket, float] = {}
    come: dict[socket.socket, bytes] = {}

    def begin() -> None:
        one = socket.create_connection(("127.0.0.1", port))
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        waiting.register(one, selectors.EVENT_READ)
        ask(one)

    def ask(one: socket.socket) -> None:
        started[one], come[one] = time.perf_counter(), b""
        one.sendall(asked)

    def leave(one: socket.socket) -> None:
        waiting.unregister(one)
        one.close()
        del started[one], come[one]

    for _ in range(at_a_time):
        begin()
    begun = time.perf_counter()
    seen = Burst(seconds)
    while time.perf_counter() - begun < seconds:
        for key, _ in waiting.select(1):
            one: socket.socket = key.fileobj  # type: ignore[assignment]
            come[one] += one.recv(1 << 16)
            status = whole(come[one])
            if status:
                if status == 200:
                    seen.latencies.append(time.perf_counter() - started[one])
                seen.statuses[status] = seen.statuses.get(status, 0) + 1
            if status and not LAST.search(come[one].partition(b"\r\n\r\n")[0]):
                ask(one)
            elif status:
                leave(one)
                begin()
    seen.seconds = time.perf_counter() - begun
    for one in list(started):
        leave(one)
    return seen


def whole(reply: bytes) -> int:
    """The status of a reply that is there to its end, or 0."""
    head, end, body = reply.partition(b"\r\n\r\n")
    if not end:
        return 0
    length = LENGTH.search(head)
    done = len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n")
    return int(head[9:12]) if done else 0


def cpu_seconds(roots: list[int]) -> float:
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
