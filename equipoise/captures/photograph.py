"""Photographs that clients send to a detector, as captures keep them: whole, upright, and without what their file says.

People draw boxes in what they see, so a capture for labelling holds the photograph and not the square that the model
takes. Fitted into that square once more, by the code of the service, it is what the model has seen.
"""

import io
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from PIL import Image

from equipoise.boxes.found_box import FoundBox
from equipoise.images.letterbox import Letterbox, fit_letterbox
from equipoise.images.orientation import PILLOW_FORMATS, apply_exif_orientation
from equipoise.images.pixel_depth import convert_to_8_bit
from equipoise.images.png import encode_png, is_plain_png

MAX_SIDE_PIXELS = 1280  # of a photograph in a capture: a PNG of a megabyte or two, sharp enough to draw boxes in


def keep_photograph(encoded: bytes, boxes: Sequence[FoundBox], input_pixels: int) -> tuple[bytes, tuple[FoundBox, ...]]:
    """Return a photograph as PNG, scaled down where it is large, and the boxes in its pixels.

    `boxes` are in pixels of the square of `input_pixels` that the model takes.
    """
    with Image.open(io.BytesIO(encoded), formats=PILLOW_FORMATS) as image:
        upright = convert_to_8_bit(apply_exif_orientation(image)).convert("RGB")
    width, height = upright.size
    letterbox = fit_letterbox(width, height, input_pixels)
    if max(width, height) > MAX_SIDE_PIXELS:
        factor = MAX_SIDE_PIXELS / max(width, height)
        new_size = max(1, round(width * factor)), max(1, round(height * factor))
        upright = upright.resize(new_size, Image.Resampling.LANCZOS)
    shares = upright.width / width, upright.height / height
    kept = tuple(move_to_photograph(box, letterbox, (width, height), shares) for box in boxes)
    if is_plain_png(encoded, (3, upright.height, upright.width)):
        return encoded, kept
    return encode_png(np.asarray(upright).transpose(2, 0, 1)), kept


def move_to_photograph(
    box: FoundBox, letterbox: Letterbox, size: tuple[int, int], shares: tuple[float, float]
) -> FoundBox:
    """Return a box of the square in pixels of the photograph, cut at its sides and scaled by `shares`."""
    x, y, width, height = letterbox.boxes_to_picture(np.array([box.x, box.y, box.width, box.height], np.float64))
    (left, right), (top, bottom) = (
        (float(np.clip(start, 0, limit)) * share, float(np.clip(start + side, 0, limit)) * share)
        for start, side, limit, share in zip((x, y), (width, height), size, shares, strict=True)
    )
    return replace(box, x=left, y=top, width=right - left, height=bottom - top)
