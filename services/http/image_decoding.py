"""Encoded pictures from strangers, judged by their headers before they are decoded."""

import io
import warnings

from PIL import Image, UnidentifiedImageError
from torch import Tensor

from equipoise.images.decode import UNREADABLE, pixels
from services.http.errors import Refused

FORMATS = ("PNG", "JPEG", "WEBP")
warnings.simplefilter("error", Image.DecompressionBombWarning)  # Pillow's own limit is larger than any of ours


def decoded(data: bytes, shape: tuple[int, ...], most_pixels: int) -> Tensor:
    """A picture as a model takes it: uint8 (channels, height, width)."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > most_pixels:
                size = f"{image.width}x{image.height}"
                raise Refused(413, f"a picture may have {most_pixels} pixels, this one has {size}", "too large")
            return pixels(image, shape)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise Refused(413, f"a picture may have {most_pixels} pixels ({first_line(error)})", "too large") from None
    except UnidentifiedImageError:
        raise Refused(400, f"the picture is none of {', '.join(FORMATS)}") from None
    except (*UNREADABLE, KeyError, IndexError, AttributeError, TypeError) as error:
        # Pillow raises what it stumbles over where a file lies about itself
        raise Refused(400, f"the picture cannot be read as {', '.join(FORMATS)} ({first_line(error)})") from None


def first_line(error: BaseException) -> str:
    """What an error says, in short."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
