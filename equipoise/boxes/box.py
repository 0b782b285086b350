"""Box around one thing in a picture, with its class."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LabelledBox:
    """Box in pixels of the upright picture, from its left top corner."""

    label: str
    x: float
    y: float
    width: float
    height: float
    is_crowd: bool = False
