"""Thumbnails of images for pages, also with the boxes that a model found in them."""

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike
from PIL import Image, ImageDraw

from equipoise.images.png import as_image, encode_png
from equipoise.spacing import evenly_spaced_indices
from equipoise.type_aliases import AnyArray

MAX_THUMBNAILS_PER_ROW = 12
MAX_THUMBNAIL_SIDE_PIXELS = 64
MAX_BOXED_SIDE_PIXELS = 160  # of a thumbnail with boxes, which are small parts of it
BOX_COLORS = ("#ffb000", "#648fff", "#dc267f", "#fe6100", "#785ef0", "#22d3ee", "#a3e635", "#ffffff")
"""colours of boxes by class, in turns"""

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


def draw_boxes(picture: ArrayLike, boxes: AnyArray, labels: AnyArray) -> bytes:
    """Return a uint8 image (channels, height, width) as a PNG of at most 160 pixels a side, with boxes drawn on it.

    `boxes` (n, 4) are left, top, width and height in pixels; `labels` (n,) choose their colours.
    """
    image = as_image(picture).convert("RGB")
    factor = MAX_BOXED_SIDE_PIXELS / max(image.size)
    image = image.resize((max(1, round(image.width * factor)), max(1, round(image.height * factor))))
    drawing = ImageDraw.Draw(image)
    for (x, y, width, height), label in zip(boxes.tolist(), labels.tolist(), strict=True):
        sides = [factor * side for side in (x, y, x + max(width, 0), y + max(height, 0))]
        drawing.rectangle(sides, outline=BOX_COLORS[label % len(BOX_COLORS)], width=2)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def boxed_thumbnails(reference_arrays: Mapping[str, Any], classes: Sequence[str], threshold: float) -> CaptionedPngs:
    """Return evenly spaced images of a detector's reference with the boxes found in them, captioned with their classes.

    `threshold` is the score from which a box counts.
    """
    pictures = reference_arrays.get("pictures")
    if pictures is None or not len(pictures):
        return []
    indices = evenly_spaced_indices(len(pictures), MAX_THUMBNAILS_PER_ROW)
    thumbnails: CaptionedPngs = []
    for index in indices.tolist():
        place = reference_arrays["places"][index]
        counts = reference_arrays["scores"][place] >= threshold
        boxes, labels = (reference_arrays[name][place][counts] for name in ("boxes", "labels"))
        thumbnails.append((draw_boxes(pictures[index], boxes, labels), describe_found(labels, classes)))
    return thumbnails


def describe_found(labels: AnyArray, classes: Sequence[str]) -> str:
    """Return what was found in an image in words, such as `2 cola, 1 water`."""
    counts = Counter(classes[label] for label in labels.tolist())
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "no box"
