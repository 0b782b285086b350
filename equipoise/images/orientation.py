"""Files of photographs and which side of each is up, without importing torch."""

from pathlib import Path

from PIL import Image, ImageFile

PILLOW_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
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
LYING_ORIENTATIONS = {5, 6, 7, 8}
"""values of the EXIF tag at which width and height change places"""


def list_image_files(folder: Path) -> list[Path]:
    """Return the paths of all images below a folder in sorted order, without hidden ones."""
    files = (path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())
    return sorted(path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def apply_exif_orientation(image: Image.Image) -> Image.Image:
    """Return an image turned upright as its EXIF says, or unchanged if its EXIF is damaged."""
    if image.format == "TIFF" and isinstance(image, ImageFile.ImageFile):
        image.filename = ""  # Pillow 13 maps such a file to memory with width and height of the turned picture
    image.load()  # a PNG may hold its EXIF after the pixels
    transpose = EXIF_TRANSPOSES.get(read_exif_orientation(image))
    return image if transpose is None else image.transpose(transpose)


def read_exif_orientation(image: Image.Image) -> int:
    """Return the orientation in the EXIF of an image; 1, upright, if there is none or it is damaged."""
    if ORIENTATION_SOURCES.isdisjoint(image.info) and not hasattr(image, "tag_v2"):
        return 1
    try:
        return int(image.getexif().get(EXIF_ORIENTATION_TAG, 1))
    except Exception:  # Pillow may raise anything for a damaged header
        return 1


def read_upright_size(path: Path) -> tuple[int, int]:
    """Return width and height in pixels of the photograph in a file, turned upright as its EXIF says."""
    with Image.open(path, formats=PILLOW_FORMATS) as image:
        if image.format == "PNG":
            image.load()  # it may hold its EXIF after the pixels
        width, height = image.size
        if image.format == "TIFF":
            return width, height  # Pillow turns it upright by itself
        return (height, width) if read_exif_orientation(image) in LYING_ORIENTATIONS else (width, height)
