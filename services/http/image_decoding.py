"""Encoded pictures from strangers, judged by their headers before they are decoded."""

import io
import warnings

from PIL import Image, UnidentifiedImageError
from torch import Tensor

from equipoise.formatting import first_line
from equipoise.images.decode import pixels
from equipoise.images.png import UNREADABLE
from services.http import errors
from services.http.errors import Refused

FORMATS = ("PNG", "JPEG", "WEBP")
LONGEST = 120  # characters of what Pillow says
warnings.simplefilter("error", Image.DecompressionBombWarning)  # Pillow's own limit is larger than any of ours


def decoded(data: bytes, shape: tuple[int, ...], most_pixels: int) -> Tensor:
    """A picture as a model takes it: uint8 (channels, height, width)."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > most_pixels:
                raise errors.picture_is_too_large(most_pixels, f"this one has {image.width}x{image.height}")
            return pixels(image, shape)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise errors.picture_is_too_large(most_pixels, first_line(error)[:LONGEST]) from None
    except UnidentifiedImageError:
        raise Refused(400, f"the picture is none of {', '.join(FORMATS)}") from None
    except (*UNREADABLE, KeyError, IndexError, AttributeError, TypeError) as error:
        # Pillow raises what it stumbles over where a file lies about itself
        why = first_line(error)[:LONGEST]
        raise Refused(400, f"the picture cannot be read as {', '.join(FORMATS)} ({why})") from None
