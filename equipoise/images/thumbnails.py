"""Pictures as small as a page takes them."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from equipoise.images.png import encoded

MOST = 12  # pictures of a row
SIDE = 64  # pixels, at most

Shown = list[tuple[bytes, str]]
"""PNG, and what is said of it"""


def thumbnail(png: bytes) -> bytes:
    """The same picture, no larger than a page takes it."""
    with Image.open(io.BytesIO(png)) as picture:
        if max(picture.size) <= SIDE:
            return png
        picture.thumbnail((SIDE, SIDE))
        held = io.BytesIO()
        picture.save(held, "PNG")
        return held.getvalue()


def usual(kept: Mapping[str, Any], classes: Sequence[str]) -> Shown:
    """Some of the pictures that a bundle keeps of its reference, from the first to the last, with what they show."""
    pictures = kept.get("pictures")
    if pictures is None or not len(pictures):
        return []
    labels = [classes[int(label)] for label in kept["labels"][kept["places"]]] if "places" in kept else None
    places = np.linspace(0, len(pictures) - 1, min(len(pictures), MOST)).astype(int)
    return [(thumbnail(encoded(pictures[place])), labels[place] if labels else "") for place in places]
