"""Contents of confirm.json: how the training run that confirms a plan compares with its predictions."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from equipoise.number_bounds import NonNegativeNumber
from equipoise.planning.document import IntervalEstimate
from equipoise.storage.atomic import read_json
from equipoise.storage.json_decoding import decode_json_value
from equipoise.type_aliases import JsonObject

CONFIRMATION_FILE = "confirm.json"


@dataclass(frozen=True, kw_only=True)
class PredictionCheck:
    """Measured value beside its prediction."""

    value: NonNegativeNumber
    predicted: NonNegativeNumber
    ratio: NonNegativeNumber
    """value over prediction"""


@dataclass(frozen=True, kw_only=True)
class ConfirmationResult:
    """Seconds of the confirmation run against the plan's interval, and the checks of what they are made of."""

    seconds: NonNegativeNumber | None
    """seconds to the target; None if the run did not reach it"""
    predicted: IntervalEstimate
    inside: bool
    """true if the seconds lie inside the predicted interval"""
    examples: PredictionCheck | None = None
    """examples to the target; None if the run did not reach it, like `step`"""
    step: PredictionCheck | None = None
    """seconds per step"""

    def to_json(self) -> JsonObject:
        """Return the contents of confirm.json: without checks if the run did not reach the target."""
        return {name: value for name, value in asdict(self).items() if value is not None or name == "seconds"}

    @classmethod
    def from_json(cls, contents: object, problem: str = "cannot read the confirmation of a plan") -> Self:
        """Build a confirmation from the contents of confirm.json; refuse contents that are none."""
        return decode_json_value(
            contents, cls, code="file-damaged", problem=problem, remedy="run the same jobs.sweep again"
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a confirm.json."""
        return cls.from_json(read_json(path), f"cannot read {path}")
