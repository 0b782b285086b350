"""Code blocks of a documentation page, and what the words behind their language say about running them.

A block that shows commands or a program has one of these, after its language:

    id=train                tests/docs runs it, after the blocks above it, in a folder that all pages share
    skip="needs a cloud"    why no test runs it

and, where it has an id, any of these:

    in=tests/autoscaling    this suite runs it instead
    service                 it runs until the end of the page, and answers at port 8000 in the text
    status=0,3              exit statuses that are expected; 0 if not given
    file=mine.py            it is saved under this name and not run

A block of JSON with output=ID shows what the block with this id prints: the test looks for the same keys.
"""

import re
import shlex
import textwrap
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)(?P<attributes>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
COMMAND_LANGUAGES = ("sh", "bash", "python")


@dataclass(frozen=True)
class Fence:
    """Code block of a page."""

    language: str
    attributes: dict[str, str]
    """words behind the language: `id=train` is one with a value, `service` one without"""
    text: str

    @cached_property
    def statuses(self) -> list[int]:
        """Exit statuses that are expected of the block."""
        return [int(status) for status in self.attributes.get("status", "0").split(",")]

    @cached_property
    def name(self) -> str:
        """Id of the block, or else its first line."""
        return self.attributes.get("id") or self.text.partition("\n")[0]


def list_fences(page: Path) -> list[Fence]:
    """Return all code blocks of a page, in their order."""
    fences = []
    for match in FENCE.finditer(page.read_text(encoding="utf-8")):
        words = (word.partition("=") for word in shlex.split(match["attributes"]))
        attributes = {name: value for name, _, value in words}
        fences.append(Fence(match["language"], attributes, textwrap.dedent(match["text"])))
    return fences


def read_fences(page: Path) -> dict[str, Fence]:
    """Return the code blocks of a page that have an id, in their order."""
    fences: dict[str, Fence] = {}
    for fence in list_fences(page):
        if name := fence.attributes.get("id"):
            assert name not in fences, f"{page} has two code blocks with the id {name}"
            fences[name] = fence
    return fences
