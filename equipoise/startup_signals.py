"""End a command in one sentence when it is stopped while it still imports its libraries, which takes seconds."""

import os
import signal
from types import FrameType

STOPPED_STATUS = 143


def exit_on_startup_signals() -> None:
    """Make Ctrl-C and SIGTERM end this process, until `command_line.command` handles them.

    A command calls this before its own imports, if it is the program that was started. Signals that are ignored, as
    SIGINT in the background of a script, stay so.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, exit_stopped)


def exit_stopped(_number: int, _frame: FrameType | None) -> None:
    """End the process at once, because what it was importing cannot be interrupted in an orderly way."""
    os.write(2, b"\nstopped\n")
    os._exit(STOPPED_STATUS)
