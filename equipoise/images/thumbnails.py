"""Thumbnails of images for pages."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image

from equipoise.images.png import encode_png
from equipoise.spacing import evenly_spaced_indices

MAX_THUMBNAILS_PER_ROW = 12
MAX_THUMBNAIL_SIDE_PIXELS = 64

CaptionedPngs = list[tuple[bytes, str]]
"""pairs of PNG bytes and caption"""


def make_thumbnail(png: bytes) -> bytes:
    """Return a PNG scaled down to at most 64 pixels per side; return a smaller one unchanged."""
    with Image.open(io.BytesIO(png)) as image:
        if max(image.size) <= MAX_THUMBNAIL_SIDE_PIXELS:
            return png
        image.thumbnail((MAX_THUMBNAIL_SIDE_PIXELS, MAX_THUMBNAIL_SIDE_PIXELS))
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        return buffer.getvalue()


def reference_thumbnails(reference_arrays: Mapping[str, Any], classes: Sequence[str]) -> CaptionedPngs:
    """Return evenly spaced images of a bundle's reference as thumbnails, captioned with their classes."""
    pictures = reference_arrays.get("pictures")
    if pictures is None or not len(pictures):
        return []
    labels = (
        [classes[int(label)] for label in reference_arrays["labels"][reference_arrays["places"]]]
        if "places" in reference_arrays
        else None
    )
    indices = evenly_spaced_indices(len(pictures), MAX_THUMBNAILS_PER_ROW)
    return [(make_thumbnail(encode_png(pictures[index])), labels[index] if labels else "") for index in indices]
