"""Published detector: images in, boxes with labels and scores out."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from equipoise.boxes.found_box import FoundBox
from equipoise.bundle.kinds.base_bundle import Bundle
from equipoise.bundle.manifest import Manifest
from equipoise.errors import EquipoiseError
from equipoise.images.placement import ImagePlacement, load_placed_image
from equipoise.type_aliases import AnyArray

MAX_BATCH_IMAGES = 64  # computed at a time


class BoxesBundle(Bundle):
    """Published detector.

    Attributes:
        shape: channels, height and width of the images that the model takes
        max_boxes: boxes that the programs return for each image
        threshold: score from which a box counts
    """

    def __init__(self, folder: Path, manifest: Manifest, engine_name: str | None = None) -> None:
        """Load the verified bundle in `folder`; refuse one that does not run.

        `engine_name` overrides the engine chosen at publication (the fastest), for comparisons.
        """
        if manifest.boxes is None:
            raise EquipoiseError("bundle-kind", f"{manifest.name} does not find boxes")
        self.shape, self.max_boxes = manifest.boxes.image.shape, manifest.boxes.max_boxes
        self.threshold = manifest.detection.threshold
        super().__init__(folder, manifest, engine_name)

    def find_boxes(self, sources: Sequence[str | Path | bytes], threshold: float | None = None) -> list[list[FoundBox]]:
        """Find the boxes in photographs, given as paths or bytes, the ones with the highest scores first.

        `threshold` takes the place of the score that was chosen at publication.
        """
        if isinstance(sources, str | Path | bytes):
            found = type(sources).__name__
            raise EquipoiseError(
                "images-invalid", f"cannot find boxes with {self.name}: got one {found}", "give a list"
            )
        boxes: list[list[FoundBox]] = []
        size = self.shape[1]
        for start in range(0, len(sources), MAX_BATCH_IMAGES):
            part = sources[start : start + MAX_BATCH_IMAGES]
            placed = [load_placed_image(Path(source) if isinstance(source, str) else source, size) for source in part]
            scores, found_boxes, labels, _ = self.run_engine(torch.stack([image for image, _ in placed]))
            for index, (_, placement) in enumerate(placed):
                boxes.append(self.read_boxes(scores[index], found_boxes[index], labels[index], placement, threshold))
        return boxes

    def read_boxes(
        self,
        scores: Tensor,
        boxes: Tensor,
        labels: Tensor,
        placement: ImagePlacement | None = None,
        threshold: float | None = None,
    ) -> list[FoundBox]:
        """Return the boxes of one image that count; those that lie beside its photograph are left out.

        Without a placement they are in pixels of the input.
        """
        least = self.threshold if threshold is None else threshold
        # as arrays, and only those that count: torch takes twice as long for so few numbers
        label_array, score_array, box_array = (output.numpy() for output in (labels, scores, boxes))
        is_sure = score_array >= least
        label_array, score_array, box_array = label_array[is_sure], score_array[is_sure], box_array[is_sure]
        if placement:
            box_array = placement.to_photograph(box_array)
        rows = zip(label_array.tolist(), score_array.tolist(), box_array.tolist(), strict=True)
        return [FoundBox(self.classes[label], score, *box) for label, score, box in rows if box[2] > 0 and box[3] > 0]

    def select_input_arrays(self, arrays: dict[str, AnyArray]) -> list[AnyArray]:
        """Return the array of reference.npz that holds images, which pages show too."""
        return [arrays["pictures"]]
