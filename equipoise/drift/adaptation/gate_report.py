"""What the gate between an adapted model and its publication compared, as a file for people and programs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from equipoise.storage.atomic import read_json, write_json
from equipoise.storage.json_decoding import decode_json_value

GATE_FILE = "gate.json"


@dataclass(frozen=True, kw_only=True)
class GateRow:
    """Accuracy of both models on one set of images that neither has learned from."""

    images: str
    """clean, at first, known N, drifted or labelled"""
    before: float
    """accuracy of the old model; of a detector, its mean average precision"""
    after: float
    """that of the new model"""


@dataclass(frozen=True, kw_only=True)
class GateReport:
    """Comparison of an adapted model with the old one, and whether it may be published."""

    rows: tuple[GateRow, ...]
    refusal: str | None
    """why the new model is refused; None if it passes"""
    schema: int = 1

    def write(self, path: Path) -> None:
        """Write the report as JSON."""
        write_json(path, msgspec.to_builtins(self))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a report from its file."""
        return decode_json_value(read_json(path), cls, code="file-damaged", problem=f"cannot read {path}")
