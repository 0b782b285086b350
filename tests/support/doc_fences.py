"""Code blocks of a documentation page, by the id behind their language: ```sh id=train."""

import re
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(?P<language>\w+)(?P<attributes>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Fence:
    """Code block of a page."""

    language: str
    attributes: dict[str, str]
    """words behind the language: `id=train` is one with a value, `service` one without"""
    text: str


def read_fences(page: Path) -> dict[str, Fence]:
    """Return the code blocks of a page that have an id, in their order."""
    fences = {}
    for match in FENCE.finditer(page.read_text(encoding="utf-8")):
        words = (word.partition("=") for word in match["attributes"].split())
        attributes = {name: value for name, _, value in words}
        if name := attributes.get("id"):
            assert name not in fences, f"{page} has two code blocks with the id {name}"
            fences[name] = Fence(match["language"], attributes, match["text"])
    return fences
