"""Encoded pictures from strangers, judged by their headers before they are decoded."""

import io
import warnings

from PIL import Image, UnidentifiedImageError
from torch import Tensor

from equipoise.formatting import first_error_line
from equipoise.images.decode import image_to_tensor
from equipoise.images.png import PILLOW_ERRORS
from services.http.errors import RequestRejected, picture_is_too_large

ACCEPTED_FORMATS = ("PNG", "JPEG", "WEBP")
LONGEST = 120  # characters of what Pillow says
warnings.simplefilter("error", Image.DecompressionBombWarning)  # Pillow's own limit is larger than any of ours


def decode_image(data: bytes, shape: tuple[int, ...], max_pixels: int) -> Tensor:
    """A picture as a model takes it: uint8 (channels, height, width)."""
    try:
        with Image.open(io.BytesIO(data), formats=ACCEPTED_FORMATS) as image:
            if image.width * image.height > max_pixels:
                raise picture_is_too_large(max_pixels, f"this one has {image.width}x{image.height}")
            return image_to_tensor(image, shape)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise picture_is_too_large(max_pixels, first_error_line(error)[:LONGEST]) from None
    except UnidentifiedImageError:
        raise RequestRejected(400, f"the picture is none of {', '.join(ACCEPTED_FORMATS)}") from None
    except (*PILLOW_ERRORS, KeyError, IndexError, AttributeError, TypeError) as error:
        # Pillow raises what it stumbles over where a file lies about itself
        why = first_error_line(error)[:LONGEST]
        raise RequestRejected(400, f"the picture cannot be read as {', '.join(ACCEPTED_FORMATS)} ({why})") from None
