"""A training program of the user's as a process: its output line by line, and its end with all that it started."""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple
from uuid import uuid4

import equipoise
from equipoise.errors import EquipoiseError
from jobs.user_command import reaper

STOP_SECONDS = 2.0  # between SIGTERM and SIGKILL
KILL_SECONDS = 10.0  # for a killed process to disappear
OUTPUT_END_SECONDS = 1.0  # for the rest of the output of a program that has ended, whoever else holds its pipes
MAX_LINE_BYTES = 1 << 16  # longer lines are cut: a program may print anything
LAST_LINES = 20
MAX_SHOWN_LINES, MAX_SHOWN = 5, 300  # lines and characters of them in a message
CHECKOUT = Path(equipoise.__file__).parents[1]
LINE_END = re.compile(rb"[\r\n]+")  # progress bars end their lines with a carriage return
SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
URL_PASSWORD = re.compile(r"://[^:/@\s]*:([^@/\s]+)@")
MIN_SECRET_LENGTH = 6


class OutputLine(NamedTuple):
    """Line that a program printed, and the seconds since its start."""

    text: str
    seconds: float


class CommandProcess:
    """Process of a command, the leader of a session of its own."""

    def __init__(self, arguments: Sequence[str], threads: int, folder: Path, mark: str | None = None) -> None:
        self.mark = mark or uuid4().hex
        self.secrets = find_secrets(os.environ)
        self.started_at, self.ended_at = time.monotonic(), 0.0
        try:
            self.process = subprocess.Popen(  # noqa: S603 - the user's own command
                arguments,
                cwd=folder,
                env=build_environment(self.mark, threads),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise EquipoiseError(
                "command-unusable",
                f"cannot start {arguments[0]!r} in {folder}: {error.strerror}",
                "give a program that exists on all nodes",
            ) from None
        self.lines: queue.SimpleQueue[OutputLine] = queue.SimpleQueue()
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self.readers = [
            threading.Thread(target=self._read_lines, args=(stream,), daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
        ]
        for reader in self.readers:
            reader.start()

    def _read_lines(self, stream: BinaryIO) -> None:
        with stream:
            for line in split_lines(stream):
                seconds = time.monotonic() - self.started_at
                text = mask_secrets(line.decode(errors="replace"), self.secrets)
                self.last_lines.append(text)
                self.lines.put(OutputLine(text, seconds))

    def read_lines(self, seconds: float) -> Iterator[OutputLine]:
        """Yield the lines that come within `seconds`, until the program has ended and all its lines are read."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                yield self.lines.get(timeout=max(0.0, min(0.02, deadline - time.monotonic())))
            except queue.Empty:
                if self.has_ended():
                    return
            if time.monotonic() >= deadline:  # also where a program prints without a pause
                return

    def run_seconds(self) -> float:
        """Return how long the program has run, until now or until its end."""
        return (self.ended_at or time.monotonic()) - self.started_at

    def has_ended(self) -> bool:
        """Return whether the program has ended and its output is complete."""
        if self.process.poll() is None:
            return False
        self.ended_at = self.ended_at or time.monotonic()
        for reader in self.readers:
            reader.join(OUTPUT_END_SECONDS)
        return self.lines.empty()

    def stop(self) -> int:
        """End the program and all that it started, and return its exit status, negative after a signal."""
        for signum, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
            if self.process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signum)
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(seconds)
        self.ended_at = self.ended_at or time.monotonic()
        reaper.kill_marked_processes(self.mark)
        for reader in self.readers:
            reader.join(OUTPUT_END_SECONDS)
        return self.process.wait()

    def describe_end(self) -> str:
        """Return the exit status of a program that has ended, and its last lines, on one line."""
        status = self.process.wait()
        ended = (
            f"the command was ended by signal {-status}" if status < 0 else f"the command ended with status {status}"
        )
        return f"{ended}; {self.describe_output()}"

    def describe_output(self) -> str:
        """Return the last lines of a program, without secrets, on one line."""
        lines = [line.strip() for line in self.last_lines if line.strip()]
        return f"its last lines: {' | '.join(lines[-MAX_SHOWN_LINES:])[-MAX_SHOWN:]}" if lines else "it printed nothing"


def build_environment(mark: str, threads: int) -> dict[str, str]:
    """Return the variables of a command: those of this process, its threads, and where Python and `equipoise` are."""
    variables = dict(os.environ)
    if "VIRTUAL_ENV" not in variables:  # then `python` is that of this process, whatever started its Ray
        variables["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), variables.get("PATH", os.defpath)])
    if (CHECKOUT / "pyproject.toml").exists():  # else it is installed
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [variables.get("PYTHONPATH"), str(CHECKOUT)]))
    return variables | {
        reaper.MARK_VARIABLE: mark,
        "OMP_NUM_THREADS": str(threads),
        "PYTHONUNBUFFERED": "1",  # else its lines would come late, many at once
    }


def split_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a pipe as they come, each cut to a length; the last may lack its end."""
    rest = b""
    while chunk := os.read(stream.fileno(), 1 << 16):
        *lines, rest = LINE_END.split(rest + chunk)
        yield from (line[:MAX_LINE_BYTES] for line in lines)
        if len(rest) > MAX_LINE_BYTES:
            yield rest[:MAX_LINE_BYTES]
            rest = b""
    if rest:
        yield rest


def find_secrets(environment: Mapping[str, str]) -> list[str]:
    """Return values of variables named like secrets, line by line, and passwords in URLs; the longest first."""
    secrets = set()
    for name, value in environment.items():
        parts = value.splitlines() if SECRET_NAME.search(name) else URL_PASSWORD.findall(value)
        secrets |= {part.strip() for part in parts if len(part.strip()) >= MIN_SECRET_LENGTH}
    return sorted(secrets, key=lambda secret: (-len(secret), secret))


def mask_secrets(text: str, secrets: Sequence[str]) -> str:
    """Return a text with these secrets hidden."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def start_reaper(mark: str) -> subprocess.Popen[bytes]:
    """Start a process that kills all processes with a mark as soon as this one has ended, however it ends.

    It waits for the end of its standard input.
    """
    return subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, str(Path(reaper.__file__)), mark], stdin=subprocess.PIPE
    )
