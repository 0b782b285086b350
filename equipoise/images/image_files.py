"""Image files as Pillow opens them: which are read, turned upright as their EXIF says, 16 bits per pixel made 8."""

import numpy as np
from PIL import Image

from equipoise.errors import EquipoiseError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
PILLOW_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
MAX_DECODED_PIXELS = 80_000_000  # width times height of a photograph: 240 MB as decoded RGB
EXIF_ORIENTATION_TAG = 0x0112
ORIENTATION_SOURCES = {"exif", "Raw profile type exif", "XML:com.adobe.xmp", "xmp"}
"""keys of a Pillow image's `info` that may hold its orientation; a TIFF has it in `tag_v2`"""
EXIF_TRANSPOSES = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def apply_exif_orientation(image: Image.Image) -> Image.Image:
    """Return an image turned upright as its EXIF says, or unchanged if its EXIF is damaged."""
    image.load()  # a PNG may hold its EXIF after the pixels
    if ORIENTATION_SOURCES.isdisjoint(image.info) and not hasattr(image, "tag_v2"):
        return image
    try:
        transpose = EXIF_TRANSPOSES.get(image.getexif().get(EXIF_ORIENTATION_TAG, 1))
    except Exception:  # Pillow may raise anything for a damaged header
        transpose = None
    return image if transpose is None else image.transpose(transpose)


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
