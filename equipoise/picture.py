"""Photographs as the pixels that a model takes: the same for training, for a folder and for a request."""

from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

UNREADABLE = (OSError, ValueError, SyntaxError, Image.DecompressionBombError)  # what Pillow raises on damage
MODES = {1: "L", 3: "RGB"}  # by channels


def read(source: Path | BinaryIO, shape: tuple[int, ...]) -> Tensor:
    """The middle of a photograph, upright as its EXIF says, as uint8 (channels, height, width)."""
    channels, height, width = shape
    with Image.open(source) as image:
        whole = eight_bits(ImageOps.exif_transpose(image)).convert(MODES[channels])
    pixels = np.array(ImageOps.fit(whole, (width, height), Image.Resampling.BILINEAR))
    return torch.from_numpy(pixels.reshape(height, width, channels)).permute(2, 0, 1)


def eight_bits(image: Image.Image) -> Image.Image:
    """A picture of 16 bits a pixel brought to 8; Pillow alone would cut off what is above 255."""
    if not image.mode.startswith(("I", "F")):
        return image
    values = np.asarray(image)
    if image.mode == "F" or values.min() < 0 or values.max() > 0xFFFF:
        raise ValueError(f"a picture of mode {image.mode} has no known white: save it with 8 or 16 bits a pixel")
    return Image.fromarray((values >> 8).astype(np.uint8))
