"""Test images that a run's final model classifies wrongly: misclassified.json, beside the record of the run."""

from pathlib import Path
from typing import Annotated

import msgspec

from equipoise.storage.atomic import read_json, write_json
from equipoise.storage.json_decoding import decode_json_value

MISCLASSIFIED_FILE = "misclassified.json"
MAX_MISCLASSIFIED = 12  # kept, the first in the order of the test split


class MisclassifiedImage(msgspec.Struct, frozen=True, kw_only=True):
    """Test image with its true class and the class that the model took it for."""

    index: Annotated[int, msgspec.Meta(ge=0)]
    """index of the image in the test split"""
    label: str
    """name of its class"""
    predicted: str
    """name of the class that the model took it for"""
    png: bytes
    """thumbnail"""


def write_misclassified(folder: Path, misclassified: list[MisclassifiedImage]) -> None:
    """Write the wrongly classified images of a run into its folder."""
    write_json(folder / MISCLASSIFIED_FILE, msgspec.to_builtins(misclassified))


def read_misclassified(folder: Path) -> list[MisclassifiedImage]:
    """Read the wrongly classified images of a run from its folder; none if it kept none."""
    path = folder / MISCLASSIFIED_FILE
    if not path.is_file():
        return []
    return decode_json_value(
        read_json(path), list[MisclassifiedImage], code="run-damaged", problem=f"cannot read {path}", remedy="remove it"
    )
