"""What a page needs to know of the model that it runs: classes, how pictures become its input, and what counts."""

from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from equipoise.bundle.kinds.image_input import ImageInput
from equipoise.bundle.manifest import DATA_NAMES, Manifest
from equipoise.errors import EquipoiseError
from equipoise.images.letterbox import FILL_COLOR
from equipoise.images.pixel_depth import MAX_DECODED_PIXELS
from equipoise.images.png import PILLOW_MODES
from equipoise.type_aliases import JsonObject

PAGE_SCHEMA: Final = 1


@dataclass(frozen=True, kw_only=True)
class PageInput:
    """Input of the model, and how a picture is fitted into it."""

    channels: int
    """1 for gray images, 3 for RGB"""
    height: int
    """height in pixels"""
    width: int
    """width in pixels"""
    fit: Literal["letterbox", "crop"]
    """letterbox: the whole picture, with a colour beside or above; crop: its centre"""
    fill: tuple[int, int, int] | None = None
    """colour beside or above a picture; None where nothing is left free"""


@dataclass(frozen=True, kw_only=True)
class PageManifest:
    """Contents of a page's model.json."""

    schema: Literal[1] = PAGE_SCHEMA
    """version of the format"""
    name: str
    """name of the model in a service"""
    version: str
    """version of the bundle"""
    kind: Literal["boxes", "image"]
    """boxes of a detector, or image for a class with its scores"""
    classes: list[str]
    """class names in the order of the scores, or by the number in a box's label"""
    input: PageInput
    """how pictures become the tensor of the model"""
    threshold: float | None = None
    """score from which a box counts, as chosen at publication; None for a classifier"""
    temperature: float | None = None
    """divisor of the logits that makes the scores calibrated; None for a detector"""
    max_pixels: int = MAX_DECODED_PIXELS
    """width times height of a picture, at most"""

    def to_json(self) -> JsonObject:
        """Return the contents of model.json."""
        contents: JsonObject = msgspec.to_builtins(self)
        return contents


def build_page_manifest(manifest: Manifest) -> PageManifest:
    """Build what a page needs from the manifest of a bundle; refuse a model of other data than pictures."""
    names: dict[str, Any] = {"name": manifest.name, "version": manifest.version, "classes": manifest.classes}
    if manifest.boxes is not None:
        return PageManifest(
            **names,
            kind="boxes",
            input=build_page_input(manifest.name, manifest.boxes.image, "letterbox"),
            threshold=manifest.detection.threshold,
        )
    if manifest.image is None:
        raise EquipoiseError(
            "bundle-kind",
            f"cannot export a page for {manifest.name}: it is a model of {DATA_NAMES[manifest.kind]}, and a page takes "
            "pictures",
            "give the bundle of a model of images",
        )
    return PageManifest(
        **names,
        kind="image",
        input=build_page_input(manifest.name, manifest.image, "crop"),
        temperature=manifest.classification.temperature,
    )


def build_page_input(name: str, image: ImageInput, fit: Literal["letterbox", "crop"]) -> PageInput:
    """Build the description of a model's input; refuse images that no photograph can be made into."""
    if image.channels not in PILLOW_MODES:
        raise EquipoiseError(
            "images-invalid",
            f"cannot export a page for {name}: it takes {image.channels} channels and photographs have 1 or 3",
            "give a model of gray or RGB images",
        )
    fill = FILL_COLOR if fit == "letterbox" else None
    return PageInput(channels=image.channels, height=image.height, width=image.width, fit=fit, fill=fill)
