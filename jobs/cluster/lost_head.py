"""Say that the head of the cluster is lost: Ray ends the driver a minute later, without a word about the run."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from ray.exceptions import RayActorError

from equipoise.errors import CommandFailed, EquipoiseError
from equipoise.storage.retry import StoreUnavailable

HEAD_CHECK_SECONDS, CONNECT_SECONDS = 5.0, 2.0
LOST_HEAD_REMEDY = "once there is a cluster again, the same command goes on from the last checkpoint"


@contextmanager
def watch_head(address: str) -> Iterator[None]:
    """Print a sentence if the head of the cluster at HOST:PORT does not answer in the `with` block.

    A thread of its own looks, because calls of Ray wait for a lost head until Ray ends the process.
    """
    block_ends = Event()
    Thread(target=report_lost_head, args=(address, block_ends), name="lost-head", daemon=True).start()
    try:
        yield
    finally:
        block_ends.set()


@contextmanager
def explain_lost_head(address: str) -> Iterator[None]:
    """Turn errors of Ray in the `with` block into a sentence, where the head of the cluster at HOST:PORT is lost.

    Ray itself would print their traceback, but asks the head first, in vain, and ends the process.
    """
    try:
        yield
    except (EquipoiseError, CommandFailed, StoreUnavailable):
        raise
    except RayActorError:
        raise CommandFailed(
            "the process of Ray that directs the workers is gone, as when the head of the cluster is lost;"
            f" {LOST_HEAD_REMEDY}"
        ) from None
    except Exception:
        if stays_reachable(address):
            raise
        raise CommandFailed(f"the head of the cluster at {address} is lost; {LOST_HEAD_REMEDY}") from None


def stays_reachable(address: str, seconds: float = CONNECT_SECONDS) -> bool:
    """Return whether a program listens at HOST:PORT now and a moment later: a head may lose its parts one by one."""
    return accepts_connections(address) and not Event().wait(seconds) and accepts_connections(address)


def report_lost_head(address: str, block_ends: Event, check_seconds: float = HEAD_CHECK_SECONDS) -> None:
    """Print a sentence each time the program at HOST:PORT stops to accept connections, until the block ends."""
    was_lost = False
    while not block_ends.wait(check_seconds):
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
