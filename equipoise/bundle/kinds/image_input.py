"""Images that a published model takes, and how photographs become them."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from equipoise.bundle.tensor_spec import OPEN_SIZE, TensorSpec

MAX_IMAGE_SIDE_PIXELS, MAX_IMAGE_CHANNELS = 2048, 4
IMAGES_TENSOR, LOGITS_TENSOR, FEATURES_TENSOR = "images", "logits", "features"
"""names of the tensors of a program"""

SidePixels = Annotated[int, Meta(ge=1, le=MAX_IMAGE_SIDE_PIXELS)]


@dataclass(frozen=True, kw_only=True)
class ImagePreprocessing:
    """How photographs become a model's input, for people who use its programs without this package."""

    picture: str
    """orientation, crop and scaling, in words"""
    mean: list[float]
    """mean of each channel, subtracted by the program"""
    std: list[float]
    """standard deviation of each channel, by which the program divides"""


@dataclass(frozen=True, kw_only=True)
class ImageInput:
    """Images that a model takes."""

    type: Literal["uint8"] = "uint8"
    """type of the pixels"""
    channels: Annotated[int, Meta(ge=1, le=MAX_IMAGE_CHANNELS)]
    """1 for gray images, 3 for RGB"""
    height: SidePixels
    """height in pixels"""
    width: SidePixels
    """width in pixels"""
    preprocessing: ImagePreprocessing
    """how photographs become its input"""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width in pixels."""
        return self.channels, self.height, self.width

    def list_inputs(self) -> tuple[TensorSpec, ...]:
        """Return the tensors that a model of these images takes."""
        return (TensorSpec(name=IMAGES_TENSOR, dtype="uint8", shape=(OPEN_SIZE, *self.shape)),)
