"""Pixels of photographs as Pillow decodes them: how many at most, and 16 bits each made 8, without importing torch."""

import numpy as np
from PIL import Image

from equipoise.errors import EquipoiseError

MAX_DECODED_PIXELS = 80_000_000  # width times height of a photograph: 240 MB as decoded RGB


def convert_to_8_bit(image: Image.Image) -> Image.Image:
    """Convert an image of 16 bits per pixel to 8; Pillow alone would clip values above 255."""
    if not image.mode.startswith(("I", "F")):
        return image
    values = np.asarray(image)
    if image.mode == "F" or values.min() < 0 or values.max() > 0xFFFF:
        raise EquipoiseError(
            "image-undecodable",
            f"an image of mode {image.mode} has no known white",
            "save it with 8 or 16 bits per pixel",
        )
    return Image.fromarray((values >> 8).astype(np.uint8))
