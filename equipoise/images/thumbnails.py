"""Pictures as small as a page takes them."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from equipoise.images.png import encode_png

MAX_THUMBNAILS_PER_ROW = 12  # pictures of a row
MAX_THUMBNAIL_SIDE_PIXELS = 64  # pixels, at most

CaptionedPngs = list[tuple[bytes, str]]
"""PNG, and what is said of it"""


def make_thumbnail(png: bytes) -> bytes:
    """The same picture, no larger than a page takes it."""
    with Image.open(io.BytesIO(png)) as picture:
        if max(picture.size) <= MAX_THUMBNAIL_SIDE_PIXELS:
            return png
        picture.thumbnail((MAX_THUMBNAIL_SIDE_PIXELS, MAX_THUMBNAIL_SIDE_PIXELS))
        held = io.BytesIO()
        picture.save(held, "PNG")
        return held.getvalue()


def reference_thumbnails(reference_arrays: Mapping[str, Any], classes: Sequence[str]) -> CaptionedPngs:
    """Some of the pictures that a bundle keeps of its reference, from the first to the last, with what they show."""
    pictures = reference_arrays.get("pictures")
    if pictures is None or not len(pictures):
        return []
    labels = (
        [classes[int(label)] for label in reference_arrays["labels"][reference_arrays["places"]]]
        if "places" in reference_arrays
        else None
    )
    places = np.linspace(0, len(pictures) - 1, min(len(pictures), MAX_THUMBNAILS_PER_ROW)).astype(int)
    return [(make_thumbnail(encode_png(pictures[place])), labels[place] if labels else "") for place in places]
