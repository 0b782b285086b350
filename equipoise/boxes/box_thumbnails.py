"""Thumbnails of images with the boxes that a detector found in them, for pages."""

import io
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image, ImageDraw

from equipoise.boxes.found_box import FoundBox
from equipoise.images.png import encode_png
from equipoise.images.thumbnails import MAX_THUMBNAILS_PER_ROW, CaptionedPngs
from equipoise.spacing import evenly_spaced_indices

MAX_BOXED_SIDE_PIXELS = 160  # of a thumbnail with boxes, which are small parts of it
BOX_COLORS = ("#ffb000", "#648fff", "#dc267f", "#fe6100", "#785ef0", "#22d3ee", "#a3e635", "#ffffff")
"""colours of boxes, by their class"""


def draw_found_boxes(png: bytes, boxes: Sequence[FoundBox]) -> bytes:
    """Return a PNG scaled to at most 160 pixels per side, with boxes in its pixels drawn on it."""
    with Image.open(io.BytesIO(png)) as picture:
        factor = MAX_BOXED_SIDE_PIXELS / max(picture.size)
        size = max(1, round(picture.width * factor)), max(1, round(picture.height * factor))
        image = picture.convert("RGB").resize(size)
    drawing = ImageDraw.Draw(image)
    for box in boxes:
        sides = [factor * side for side in (box.x, box.y, box.x + max(box.width, 0), box.y + max(box.height, 0))]
        drawing.rectangle(sides, outline=BOX_COLORS[zlib.crc32(box.label.encode()) % len(BOX_COLORS)], width=2)
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
    thumbnails: CaptionedPngs = []
    for index in evenly_spaced_indices(len(pictures), MAX_THUMBNAILS_PER_ROW).tolist():
        place = reference_arrays["places"][index]
        scores, sides, labels = (reference_arrays[name][place] for name in ("scores", "boxes", "labels"))
        rows = zip(labels.tolist(), scores.tolist(), sides.tolist(), strict=True)
        boxes = [FoundBox(classes[label], score, *box) for label, score, box in rows if score >= threshold]
        thumbnails.append(
            (draw_found_boxes(encode_png(pictures[index]), boxes), count_labels([box.label for box in boxes]))
        )
    return thumbnails


def count_labels(labels: Sequence[str]) -> str:
    """Return what was found in an image in words, such as `2 cola, 1 water`."""
    return ", ".join(f"{count} {name}" for name, count in Counter(labels).most_common()) or "no box"
