"""End a run early: stopped by a signal, or because its workers failed."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any, TypeVar

import ray.train
from ray.exceptions import RayTaskError

from equipoise.command_line import STOPPED
from equipoise.errors import CommandFailed, EquipoiseError
from equipoise.storage.retry import StoreUnavailable, without_retries
from jobs.cluster.resources import exit_at_once

ErrorT = TypeVar("ErrorT", bound=BaseException)

RESUME_HINT = "the same command resumes once the store answers"
STOPPED_EARLY = "stopped before the next lap; the same command resumes from the last checkpoint, or from the start"


@contextmanager
def stop_on_signal(stop_file: Path, has_progress: Callable[[], bool]) -> Iterator[None]:
    """Make SIGTERM and Ctrl-C create `stop_file`, which asks the workers to save a checkpoint and end.

    Without a lap since the start there is nothing worth saving, and the process exits at once, as it does at a second
    signal. Enter it after `ray.init`, which sets handlers of its own.
    """
    stop_file.unlink(missing_ok=True)
    writers: list[Thread] = []

    def request_stop(number: int, _: FrameType | None) -> None:
        if not has_progress():
            print(STOPPED_EARLY, file=sys.stderr)
            exit_at_once(STOPPED)
        for signum, handler in previous_handlers.items():
            signal.signal(signum, handler)
        # a thread, because a store may be slow and a signal handler interrupts everything else
        writers.append(Thread(target=write_stop_file, args=(stop_file,)))
        writers[0].start()
        print("stopping: the workers save a checkpoint first", file=sys.stderr, flush=True)

    previous_handlers = {signum: signal.signal(signum, request_stop) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for signum, handler in previous_handlers.items():
            signal.signal(signum, handler)
        if writers:
            writers[0].join()
            with suppress(OSError, EquipoiseError), without_retries():  # the next command removes it if this one cannot
                stop_file.unlink(missing_ok=True)


def write_stop_file(stop_file: Path) -> None:
    """Create the file that stops the workers; if that fails, the run ends as soon as it needs the store."""
    with suppress(OSError, EquipoiseError):
        stop_file.touch()


class StopOnLastingError(ray.train.UserCallback):
    """Callback that ends a run on an error that restarted workers would meet again.

    Such are a store that is unavailable, for which the worker has waited already, and a mistake of the user.
    """

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Raise the error itself: Ray does not restart workers after an error in a callback."""
        for error in worker_exceptions.values():
            if (known := find_cause(error, (StoreUnavailable, EquipoiseError))) is not None:
                raise known


def find_cause(error: BaseException | None, kinds: tuple[type[ErrorT], ...]) -> ErrorT | None:
    """Return the first error of one of these kinds behind an error of Ray's, however Ray wrapped it, or None."""
    # an error that Ray raises for a worker's is of both kinds, and its text is a whole traceback: its cause is meant
    while error is not None and (not isinstance(error, kinds) or isinstance(error, RayTaskError)):
        failures = list((getattr(error, "worker_failures", None) or {}).values())
        causes = [getattr(error, name, None) for name in ("_base_exc", "controller_failure", "cause")] + failures
        error = next((cause for cause in causes if isinstance(cause, BaseException)), error.__cause__)
    return error


def explain_failure(error: ray.train.TrainingFailedError, work: str, hint: str) -> Exception:
    """Return what to raise for workers that failed: an unavailable store, a mistake of the user, or else any failure.

    `work` is what they did, and `hint` what to do now. The traceback of a worker is printed if its error is neither: it
    is a bug, in a user's workload or here.
    """
    if (known := find_cause(error, (StoreUnavailable, EquipoiseError))) is not None:
        return known
    failures = list(getattr(error, "worker_failures", {}).values())
    text = str(failures[0] if failures else error).strip() or type(error).__name__
    if "Traceback" in text:
        print(text, file=sys.stderr, flush=True)
    reason = text.splitlines()[-1]
    return CommandFailed(f"{work} failed, the last error is: {reason}; {hint}")
