"""Boxes around things in pictures, with their labels: what people draw, files hold and detectors learn."""

from dataclasses import dataclass, field

from equipoise.boxes.problems import DataProblems


@dataclass(frozen=True)
class LabelledBox:
    """Box around one thing, in pixels of the upright picture; fractions of pixels are allowed."""

    label: str
    """name of its class"""
    x: float
    """left side, from the left of the picture"""
    y: float
    """top side, from the top of the picture"""
    width: float
    """pixels from the left to the right side"""
    height: float
    """pixels from the top to the bottom side"""
    is_crowd: bool = False
    """whether it holds many things that nobody told apart: no answer in it counts as wrong"""


@dataclass(frozen=True)
class BoxedPicture:
    """Picture with the boxes of all things in it; none means that nothing is there to find."""

    file_name: str
    """path relative to the folder of the data set, with forward slashes"""
    width: int
    """pixels of the picture after it was turned upright as its EXIF says, like the height"""
    height: int
    boxes: tuple[LabelledBox, ...] = ()


@dataclass(frozen=True)
class BoxedDataset:
    """Labelled pictures of a folder, with what was left out of them and why."""

    classes: tuple[str, ...]
    pictures: tuple[BoxedPicture, ...]
    problems: DataProblems = field(default_factory=DataProblems)
