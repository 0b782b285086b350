"""End a run before its time: asked to by a signal, or given up because its workers failed."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

import ray.train

from equipoise.storage.retry import StoreUnavailable, without_retries

RESUME_HINT = "the same command goes on once it does"


@contextmanager
def stop_on_signal(stop_file: Path) -> Iterator[None]:
    """Have SIGTERM and Ctrl-C ask the workers, by the file `word`, to leave a checkpoint and end.

    Enter it after `ray.init`, which sets handlers of its own. A second signal ends the job at once.
    """
    stop_file.unlink(missing_ok=True)
    leaving: list[Thread] = []

    def ask(number: int, _: FrameType | None) -> None:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        leaving.append(
            Thread(target=write_stop_file, args=(stop_file,))
        )  # a store may take its time, and this interrupts all else
        leaving[0].start()
        print("stopping: the workers leave a checkpoint first", file=sys.stderr, flush=True)

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        if leaving:
            leaving[0].join()
            with suppress(OSError, ValueError), without_retries():  # the next command removes it if this one cannot
                stop_file.unlink(missing_ok=True)


def write_stop_file(stop_file: Path) -> None:
    """Write the file that stops the workers; where that fails, the run ends as soon as it needs the store."""
    with suppress(OSError, ValueError):
        stop_file.touch()


class StopWhenStoreUnavailable(ray.train.UserCallback):
    """End a run whose worker could not reach the store.

    The worker has already waited for it, and a group of workers that starts again would wait anew.
    """

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Raise what the store did: Ray does not try again after an error of a callback."""
        for error in worker_exceptions.values():
            if (found := find_store_error(error)) is not None:
                raise found


def find_store_error(error: BaseException | None) -> StoreUnavailable | None:
    """Return the unreachable store behind an error, however Ray wrapped it, or None."""
    while error is not None and not isinstance(error, StoreUnavailable):
        inside = [getattr(error, name, None) for name in ("_base_exc", "controller_failure", "cause")]
        error = next((one for one in inside if isinstance(one, BaseException)), error.__cause__)
    return error


def describe_failure(error: BaseException) -> str:
    """Say in a sentence why a run was given up, and how to go on."""
    if (found := find_store_error(error)) is not None:
        return f"{found}: {RESUME_HINT}"
    return (
        f"training was given up, at last by: {last_error_line(error)}; "
        "the same command goes on from its last checkpoint"
    )


def last_error_line(error: BaseException) -> str:
    """Return the last line of what a worker raised, for people; Ray's log has the rest."""
    failures = list(getattr(error, "worker_failures", {}).values())
    lines = str(failures[0] if failures else error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
