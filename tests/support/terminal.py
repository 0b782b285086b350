"""Terminal in place of standard output or standard error, for displays that look different there."""

import os
import select
import sys
import termios
from contextlib import contextmanager


@contextmanager
def open_terminal(stream_name):
    """Make `stdout` or `stderr` a terminal; yield a function that returns what it has received since the last call."""
    reader, writer = os.openpty()
    termios.tcsetwinsize(writer, (24, 120))
    previous = getattr(sys, stream_name)

    def read_output():
        received = b""
        while select.select([reader], [], [], 0)[0]:
            received += os.read(reader, 65536)
        return received.decode()

    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        setattr(sys, stream_name, stream)
        try:
            yield read_output
        finally:
            setattr(sys, stream_name, previous)
    os.close(reader)
