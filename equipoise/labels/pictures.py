"""Pictures to label: their names in a folder, their upright size, and a copy small enough for a page."""

import hashlib
import io
import re
import threading
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from equipoise.captures.traffic import is_sampled_image
from equipoise.errors import EquipoiseError
from equipoise.images.orientation import IMAGE_SUFFIXES, PILLOW_FORMATS, apply_exif_orientation
from equipoise.images.pixel_depth import MAX_DECODED_PIXELS, convert_to_8_bit
from equipoise.images.png import PILLOW_ERRORS
from equipoise.labels.store import list_files
from equipoise.storage.atomic import atomic_write

MAX_SIDE_PIXELS = 2048  # of the copy that a page gets: sharp on a large screen, and below a megabyte
JPEG_QUALITY = 88
UPLOAD_SUFFIXES = {
    "JPEG": ".jpg",
    "MPO": ".jpg",
    "PNG": ".png",
    "WEBP": ".webp",
    "BMP": ".bmp",
    "GIF": ".gif",
    "TIFF": ".tif",
}
"""suffix of an added picture by the format that its bytes have, whatever its name says; MPO is what Pillow calls a JPEG
with further pictures behind the first, such as the depth that a phone adds"""
ADDING_LOCK = threading.Lock()  # two threads that write one file would share its temporary name
MAX_STEM_LENGTH = 60  # characters that an added picture keeps of its name


@dataclass(frozen=True, kw_only=True)
class PageCopy:
    """Copy of a picture for a page: upright, scaled down where it is large."""

    content: bytes
    """JPEG, or PNG for a picture that is smaller than a kilobyte as such"""
    media_type: str
    width: int
    """pixels of the upright picture, not of the copy"""
    height: int


def list_pictures(folder: Path) -> list[str]:
    """Return the names of all pictures below a folder, with slashes, without opening one.

    Of the captures of a service, those for labelling are among them, and its uniform samples of requests are not.
    """
    return [name for name in list_files(folder, IMAGE_SUFFIXES) if not is_sampled_image(name)]


def make_page_copy(path: Path) -> PageCopy:
    """Decode a picture and return its copy for a page; refuse a damaged one and one of too many pixels."""
    try:
        with Image.open(path, formats=PILLOW_FORMATS) as image:
            if image.width * image.height > MAX_DECODED_PIXELS:
                raise EquipoiseError(
                    "image-undecodable",
                    f"it has {image.width}x{image.height} pixels, more than {MAX_DECODED_PIXELS:,}",
                    "make it smaller",
                )
            full_size = image.size
            image.draft("RGB", (MAX_SIDE_PIXELS, MAX_SIDE_PIXELS))  # a JPEG is decoded at a fraction of its size
            upright = apply_exif_orientation(image)
            is_turned = (image.width < image.height) != (upright.width < upright.height)
            width, height = full_size[::-1] if is_turned else full_size
            shown = convert_to_8_bit(upright)
            shown = shown.convert("RGB") if shown.mode not in ("L", "RGB") else shown.copy()
    except EquipoiseError:
        raise
    except PILLOW_ERRORS as error:
        raise EquipoiseError("image-undecodable", str(error)[:120] or type(error).__name__) from None
    shown.thumbnail((MAX_SIDE_PIXELS, MAX_SIDE_PIXELS), Image.Resampling.BILINEAR, reducing_gap=2.0)
    buffer = io.BytesIO()
    is_tiny = shown.width * shown.height <= 256 * 256  # where JPEG would blur what counts
    shown.save(buffer, "PNG" if is_tiny else "JPEG", **({} if is_tiny else {"quality": JPEG_QUALITY}))
    media_type = "image/png" if is_tiny else "image/jpeg"
    return PageCopy(content=buffer.getvalue(), media_type=media_type, width=width, height=height)


def add_picture(folder: Path, content: bytes, given_name: str) -> str:
    """Write an added picture to the folder as it is, and return its name there.

    The name has a digest of the content, so that a picture added twice is there once.
    """
    try:
        with Image.open(io.BytesIO(content), formats=PILLOW_FORMATS) as image:
            if image.width * image.height > MAX_DECODED_PIXELS:
                size = f"{image.width}x{image.height} pixels, more than {MAX_DECODED_PIXELS:,}"
                raise EquipoiseError("image-undecodable", f"it has {size}", "make it smaller")
            suffix = UPLOAD_SUFFIXES[image.format or ""]
            image.draft("RGB", (MAX_SIDE_PIXELS, MAX_SIDE_PIXELS))
            image.load()
    except EquipoiseError as error:
        raise error.within(f"cannot add {given_name[:40]!r}") from None
    except (*PILLOW_ERRORS, KeyError) as error:
        reason = f"it cannot be decoded as an image ({str(error)[:80]})"
        raise EquipoiseError("image-undecodable", f"cannot add {given_name[:40]!r}: {reason}") from None
    stem = re.sub(r"[^\w-]+", "-", Path(given_name).stem, flags=re.ASCII).strip("-")[:MAX_STEM_LENGTH] or "picture"
    name = f"{stem}-{hashlib.sha256(content).hexdigest()[:12]}{suffix}"
    with ADDING_LOCK:
        if not (folder / name).exists():
            with atomic_write(folder / name) as temporary:
                temporary.write_bytes(content)
    return name
