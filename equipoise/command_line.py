"""Exit statuses and one-sentence errors of every command."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from io import TextIOWrapper
from pathlib import Path
from typing import NoReturn, ParamSpec

from equipoise.errors import FAILURE_CODES, CommandFailed, EquipoiseError
from equipoise.formatting import make_printable
from equipoise.startup_signals import STOPPED_STATUS
from equipoise.storage.path_errors import DISK_FULL_ERRNOS, DISK_FULL_REMEDY
from equipoise.storage.retry import StoreUnavailable

FAILED, REFUSED, STOPPED = 1, 2, STOPPED_STATUS
"""exit statuses: something outside of the command failed; a mistake of the user; ended by SIGTERM or Ctrl-C"""
CLOSED_PIPE = 141  # as the shell reports a process that SIGPIPE ended

P = ParamSpec("P")


def command(on_stop: str = "stopped", on_store_failure: str = "") -> Callable[[Callable[P, int]], Callable[P, int]]:
    """Wrap a command's main function: a mistake of the user becomes a sentence and an exit status.

    Every other exception is a bug and keeps its traceback. `on_stop` is printed after SIGTERM or Ctrl-C,
    `on_store_failure` after the error of an object store that does not answer.
    """

    def decorate(main: Callable[P, int]) -> Callable[P, int]:
        @wraps(main)
        def run(*args: P.args, **kwargs: P.kwargs) -> int:
            prepare_standard_streams()
            try:
                with signals_as_ctrl_c():
                    status = main(*args, **kwargs)
                flush_standard_output()
            except EquipoiseError as error:
                return print_error(f"{error} [{error.code}]", FAILED if error.code in FAILURE_CODES else REFUSED)
            except CommandFailed as error:
                return print_error(str(error), FAILED, keep="\n\t")  # it may show the end of a log
            except StoreUnavailable as error:
                return print_error(f"{error}{on_store_failure and f'; {on_store_failure}'}", FAILED)
            except BrokenPipeError:  # whoever read the output, such as `head`, has enough
                discard_standard_output()
                return CLOSED_PIPE
            except OSError as error:
                if error.errno in DISK_FULL_ERRNOS:
                    return print_error(f"{describe_os_error(error)} [disk-full]", FAILED)
                return print_error(f"{describe_os_error(error)} [path-access]", REFUSED)
            except KeyboardInterrupt:
                print(f"\n{on_stop}", file=sys.stderr)  # noqa: T201
                return STOPPED
            return status

        return run

    return decorate


@contextmanager
def signals_as_ctrl_c() -> Iterator[None]:
    """Make SIGTERM and SIGINT raise KeyboardInterrupt until the end of the block.

    Without effect outside the main thread; a SIGINT that is ignored stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ignored = {signal.SIGINT} if signal.getsignal(signal.SIGINT) == signal.SIG_IGN else set()
    numbers = {signal.SIGTERM, signal.SIGINT} - ignored
    previous_handlers = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            if signal.getsignal(number) != signal.SIG_IGN:  # a command may ignore further signals while it ends
                signal.signal(number, handler)


class CommandParser(argparse.ArgumentParser):
    """Parser of positional arguments and simple options, which refuses a mistake in one sentence."""

    def __init__(self, description: str | None) -> None:
        """Show the description as it is written, and call the command as the user has typed it."""
        as_written = argparse.RawDescriptionHelpFormatter
        super().__init__(prog=format_command_name(), description=description, formatter_class=as_written)

    def error(self, message: str) -> NoReturn:
        """Raise an error of the user instead of printing the usage."""
        code = (
            "option-missing" if "required" in message else "option-unknown" if "unrec" in message else "option-format"
        )
        raise EquipoiseError(code, message, f"{self.prog} --help lists the options")


def format_command_name() -> str:
    """Return the command as a user types it: `python -m` leaves the path of a file, which a job has somewhere else."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None or not Path(sys.argv[0]).is_absolute():
        return sys.argv[0]
    return f"python -m {spec.name.removesuffix('.__main__')}"


def prepare_standard_streams() -> None:
    """Make printing never fail: a closed stream takes everything, and what an encoding lacks is escaped."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, as by >&-
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open until the end
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def flush_standard_output() -> None:
    """Write what was printed; if that fails, such as on a full disk, raise an error that names the output."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_standard_output()
        error.filename = "standard output"
        raise


def discard_standard_output() -> None:
    """Drop what is still to be printed, which Python would try to write again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_error(sentence: str, status: int, keep: str = "") -> int:
    """Print an error, with unprintable characters escaped except those in `keep`, and return the exit status."""
    print(f"error: {make_printable(sentence, keep)}", file=sys.stderr)  # noqa: T201
    return status


def describe_os_error(error: OSError) -> str:
    """Describe in one sentence why a path cannot be read or written."""
    if error.errno in DISK_FULL_ERRNOS:
        file = f" {str(error.filename)[:200]}" if error.filename else ""
        return f"cannot write{file}: {error.strerror}; {DISK_FULL_REMEDY}"
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"cannot use {str(error.filename)[:200]}: {error.strerror}; fix that or give another path"
