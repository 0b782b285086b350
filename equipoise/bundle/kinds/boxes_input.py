"""Images in which a published model finds boxes, and the tensors of its programs."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from equipoise.bundle.kinds.image_input import ImageInput
from equipoise.bundle.tensor_spec import OPEN_SIZE, TensorSpec

BOX_SCORES_TENSOR, BOXES_TENSOR, BOX_LABELS_TENSOR = "scores", "boxes", "labels"
"""names of the tensors that a program returns in front of its features"""


@dataclass(frozen=True, kw_only=True)
class BoxesInput:
    """Images that a detector takes, and how many boxes it returns for each."""

    image: ImageInput
    """images that the programs take"""
    max_boxes: Annotated[int, Meta(ge=1, le=10_000)]
    """boxes that the programs return for each image, the ones with the highest scores first"""

    def list_inputs(self) -> tuple[TensorSpec, ...]:
        """Return the tensors that a detector takes."""
        return self.image.list_inputs()

    def list_box_outputs(self) -> tuple[TensorSpec, ...]:
        """Return the tensors that a detector returns, but for its features."""
        count = self.max_boxes
        return (
            TensorSpec(name=BOX_SCORES_TENSOR, dtype="float32", shape=(OPEN_SIZE, count)),
            TensorSpec(name=BOXES_TENSOR, dtype="float32", shape=(OPEN_SIZE, count, 4)),
            TensorSpec(name=BOX_LABELS_TENSOR, dtype="int64", shape=(OPEN_SIZE, count)),
        )
