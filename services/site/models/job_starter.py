"""What the models' part needs of the site's jobs: start a command, and see how it does."""

from collections.abc import Sequence
from typing import Protocol


class JobStarter(Protocol):
    """Starter of commands as jobs of the site's Ray."""

    def start_command(self, command: str, arguments: Sequence[str]) -> str:
        """Start `equipoise COMMAND ARGUMENTS` as a job, and return its id."""

    def is_running(self, job: str) -> bool:
        """Return whether a job waits or runs; False for one that is not known any more."""

    def read_last_line(self, job: str) -> str:
        """Return the last line that a job has printed; empty if there is none."""
