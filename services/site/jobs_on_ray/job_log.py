"""Log of a job: its last lines, how far it is, and the sentence with which it ended."""

import re
from dataclasses import dataclass
from pathlib import Path

from equipoise.formatting import make_printable

TAIL_BYTES, SHORT_TAIL_BYTES = 64 << 10, 4 << 10  # read of a log, for its page and for a list of jobs
MAX_LINE_LENGTH = 2000  # characters
TIME_LEFT = re.compile(r"(\d[\d,]{0,15}) s left at most|left (\d[\d,]{0,15}) s")
TERMINAL_CODE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ERROR_LINE = re.compile(r"(?:error: |\w*(?:Error|Exception|Failed): )(.*)")
ERROR_CODE = re.compile(r" \[([a-z-]+)\]$")


@dataclass(frozen=True, kw_only=True)
class LogTail:
    """Last lines of a log."""

    lines: tuple[str, ...]
    is_whole: bool
    """whether the log has no lines before them"""
    size: int
    """bytes of the whole log"""

    @property
    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines)

    @property
    def last_line(self) -> str:
        """The last line that is not empty, which says how far the job is."""
        return next((line for line in reversed(self.lines) if line.strip()), "")

    @property
    def seconds_left(self) -> float | None:
        """The time that the job takes at most until it ends, as it last said; None if it says none."""
        for line in reversed(self.lines[-20:]):
            if match := TIME_LEFT.search(line):
                return float((match[1] or match[2]).replace(",", ""))
        return None

    def find_failure(self) -> tuple[str, str]:
        """Return the sentence with which a job ended and the code of its kind; the last line if there is none."""
        for line in reversed(self.lines):
            if match := ERROR_LINE.match(line):
                code = ERROR_CODE.search(match[1])
                return ERROR_CODE.sub("", match[1]), code[1] if code else ""
        return self.last_line, ""


def read_log_tail(file: Path, max_lines: int, tail_bytes: int = TAIL_BYTES) -> LogTail:
    """Read the last lines of a log, of its last bytes alone; nothing if there is none yet."""
    try:
        with file.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - tail_bytes))
            content = stream.read(tail_bytes)
    except OSError:
        return LogTail(lines=(), is_whole=True, size=0)
    lines = [clean_line(line) for line in content.decode("utf-8", "replace").split("\n")]
    if size > tail_bytes:
        lines = lines[1:]  # cut at its beginning
    if lines and not lines[-1]:
        lines.pop()
    return LogTail(lines=tuple(lines[-max_lines:]), is_whole=size <= tail_bytes and len(lines) <= max_lines, size=size)


def clean_line(line: str) -> str:
    """Return a line as a terminal would leave it: without colours and without what a carriage return overwrote."""
    plain = TERMINAL_CODE.sub("", line.rstrip("\r"))
    return make_printable(plain.rpartition("\r")[2], "\t")[:MAX_LINE_LENGTH]
