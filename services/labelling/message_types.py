"""Bodies of the requests of the labelling page."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from equipoise.boxes.box import LabelledBox

Holder = Annotated[str, Meta(min_length=1, max_length=64)]
"""id of an open page, which it chooses at random and keeps"""
PictureName = Annotated[str, Meta(min_length=1, max_length=1000)]


@dataclass(frozen=True, kw_only=True)
class NextBody:
    """Request for the next picture."""

    holder: Holder
    skip: Annotated[list[PictureName], Meta(max_length=1000)]
    """pictures that the person wants to see later"""


@dataclass(frozen=True, kw_only=True)
class OpenBody:
    """Request for one picture, or to keep it for some more minutes."""

    holder: Holder
    picture: PictureName


@dataclass(frozen=True, kw_only=True)
class ReleaseBody:
    """Request to hand the pictures of a page that is being closed to other people."""

    holder: Holder


@dataclass(frozen=True, kw_only=True)
class SaveBody:
    """Request to save the labels of a picture."""

    holder: Holder
    picture: PictureName
    width: int
    height: int
    base_revision: Annotated[int, Meta(ge=0)]
    """revision that the page has shown; 0 for a picture without labels"""
    author: str = ""
    boxes: tuple[LabelledBox, ...] | None = None
    label: str | None = None


@dataclass(frozen=True, kw_only=True)
class ClassBody:
    """Request to add a class."""

    name: Annotated[str, Meta(max_length=200)]
