"""Test images that a run's final model classifies wrongly: mistakes.json, beside the record of the run."""

from pathlib import Path
from typing import Annotated

import msgspec

from equipoise.storage.atomic import read_json, write_json
from equipoise.storage.json_decoding import decode_json_value

MISTAKES_FILE = "mistakes.json"
MAX_MISTAKES = 12  # kept, the first in the order of the test split


class Mistake(msgspec.Struct, frozen=True, kw_only=True):
    """Test image with its true class and the class that the model took it for."""

    index: Annotated[int, msgspec.Meta(ge=0)]
    """index of the image in the test split"""
    label: str
    """name of its class"""
    predicted: str
    png: bytes
    """thumbnail"""


def write_mistakes(folder: Path, mistakes: list[Mistake]) -> None:
    """Write the mistakes of a run into its folder."""
    write_json(folder / MISTAKES_FILE, msgspec.to_builtins(mistakes))


def read_mistakes(folder: Path) -> list[Mistake]:
    """Read the mistakes of a run from its folder; none if it kept none."""
    path = folder / MISTAKES_FILE
    if not path.is_file():
        return []
    return decode_json_value(
        read_json(path), list[Mistake], code="run-damaged", problem=f"cannot read {path}", remedy="remove it"
    )
