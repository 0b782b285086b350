"""Say that the head of the cluster is lost: Ray ends the driver a minute later, without a word about the run.

A process of its own looks after the head. Calls of Ray wait for a lost head, and now and then all threads of the driver
did, until Ray ended it. Run as a program it has the address as its argument, and ends when its input does.
"""

import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

HEAD_CHECK_SECONDS, CONNECT_SECONDS = 5.0, 2.0
LOST_HEAD_REMEDY = "once there is a cluster again, the same command goes on from the last checkpoint"


@contextmanager
def watch_head(address: str, check_seconds: float = HEAD_CHECK_SECONDS) -> Iterator[None]:
    """Print a sentence if the head of the cluster at HOST:PORT does not answer in the `with` block."""
    command = [sys.executable, "-I", __file__, address, str(check_seconds)]
    # a session of its own, because Ctrl-C in a terminal reaches all processes of a session
    watcher = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603
    try:
        yield
    finally:
        watcher.communicate()


def report_lost_head(address: str, check_seconds: float) -> None:
    """Print a sentence each time the program at HOST:PORT stops to accept connections, until the input ends."""
    was_lost = False
    while not select.select([sys.stdin], [], [], check_seconds)[0]:
        is_lost = not accepts_connections(address)
        if is_lost and not was_lost:
            print(
                f"the head of the cluster at {address} does not answer: Ray ends this command within a minute, unless"
                f" the head comes back; {LOST_HEAD_REMEDY}",
                file=sys.stderr,
                flush=True,
            )
        was_lost = is_lost


def accepts_connections(address: str) -> bool:
    """Return whether a program listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS):
            return True
    except OSError:
        return False


if __name__ == "__main__":
    report_lost_head(sys.argv[1], float(sys.argv[2]))
