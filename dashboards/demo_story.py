"""Contents of story.json: the act of a demo, its chapters, and how the service answered in each phase."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, Self

from equipoise.drift.diagnosis.verdict import VerdictState
from equipoise.number_bounds import NonNegativeNumber
from equipoise.storage.atomic import read_json, write_json
from equipoise.storage.json_decoding import decode_json_value

STORY_FILE = "story.json"
DemoAct = Literal["pictures", "detection"]


@dataclass(frozen=True, kw_only=True)
class ChapterTime:
    """Title of a chapter and how long it took."""

    title: str
    seconds: NonNegativeNumber


@dataclass(frozen=True, kw_only=True)
class PhaseAnswers:
    """How the service answered the requests of one phase."""

    requests: int
    right: int
    """requests answered with the true class; by a detector, with a box for each thing and no other"""
    accuracy: float
    unanswered: int
    light: dict[str, float] = field(default_factory=dict)
    """settings of the scene that the images show"""
    average_precision: float | None = None
    """mean average precision of the boxes that a detector answered"""

    @property
    def quality(self) -> float:
        """What an adaptation shall bring back: accuracy, or the mean average precision of a detector."""
        return self.accuracy if self.average_precision is None else self.average_precision


@dataclass(frozen=True, kw_only=True)
class PhaseVerdict:
    """Verdict of the service at the end of one phase."""

    state: VerdictState
    why: str
    conditions: dict[str, float]
    """share of the requests of this phase in each known condition, by name; empty if only one is known"""


@dataclass(frozen=True, kw_only=True)
class SwapRequests:
    """Requests sent while the model was adapted and swapped."""

    requests: int
    unanswered: int


@dataclass(frozen=True, kw_only=True)
class LabelledBoxes:
    """Boxes that people drew on the labelling page."""

    boxes: int
    by_author: dict[str, int]
    """images that each of them has labelled"""


@dataclass(kw_only=True)
class DemoStory:
    """What a demo has done so far, and what no other record holds: the accuracy of the answers."""

    demo: Literal[1]
    """version of this file"""
    chapters: list[ChapterTime]
    sent: dict[str, PhaseAnswers]
    """answers by phase: clean, drift, adapted, again, mixed"""
    verdicts: dict[str, PhaseVerdict] = field(default_factory=dict)
    """verdicts by phase, of the phases after the swap"""
    swap: SwapRequests | None = None
    labels: int = 0
    """labelled images that the model was adapted with"""
    boxes: LabelledBoxes | None = None
    """boxes in these, if it is a detector"""
    regained: float = 0.0
    """share of the lost accuracy, or mean average precision, that the adaptation recovered"""
    seconds: NonNegativeNumber = 0.0
    """duration of the whole demo"""
    act: DemoAct = "pictures"
    """pictures of one product each, or detection of each product on a shelf"""

    @classmethod
    def empty(cls) -> Self:
        """Return the story of a demo that has just started."""
        return cls(demo=1, chapters=[], sent={})

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the story of the demo in a folder; refuse a file that holds none."""
        file = folder / STORY_FILE
        return decode_json_value(
            read_json(file), cls, code="file-damaged", problem=f"cannot read {file}", remedy="run the demo again"
        )

    def write(self, folder: Path) -> None:
        """Write the story into the folder of its demo."""
        write_json(folder / STORY_FILE, asdict(self))
