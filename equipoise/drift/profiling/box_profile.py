"""Build the reference profile of a detector, and extract from new images what its charts need."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.drift.charts.cell_statistics import ImageFeatures
from equipoise.drift.features.box_stats import COUNT_NAMES, BoxEncoder, FoundBoxes, classify_counts, fit_box_encoder
from equipoise.drift.profiling.build_profile import affordable_image_count, require_large_images
from equipoise.drift.profiling.corruption_response import PROFILE_BATCH_IMAGES, measure_corruption_responses
from equipoise.drift.profiling.reference_examples import ReferenceExamples, build_profile_from_examples
from equipoise.drift.profiling.row_profile import build_kind_error, extract_example_features
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.spacing import evenly_spaced_indices

BoxFinder = Callable[[Tensor], FoundBoxes]
"""finds the boxes in images (n, channels, height, width)"""


@dataclass(frozen=True, eq=False)
class SearchedImages:
    """Images that a detector was not trained on, with the boxes that it finds in them."""

    pictures: Tensor
    """uint8 (images, channels, height, width)"""
    found: FoundBoxes
    label_counts: NDArray[np.int64] | None = None
    """(images,) number of labelled boxes; None where they are unknown"""

    def encode(self, encoder: BoxEncoder) -> ReferenceExamples:
        """Return the images as examples of a reference; their classes are the numbers of boxes."""
        classes = encoder.classes(self.found)
        labels = classes if self.label_counts is None else classify_counts(self.label_counts)
        statistics = encode_in_batches(encoder, self.pictures, self.found)
        return ReferenceExamples(
            statistics, classes, self.found.features, labels, has_labels=self.label_counts is not None
        )


def encode_in_batches(encoder: BoxEncoder, pictures: Tensor, found: FoundBoxes) -> NDArray[np.float32]:
    """Return the statistics of images, computed in batches: as floats, all would take four times the memory."""
    parts = []
    for rows in torch.arange(len(pictures)).split(PROFILE_BATCH_IMAGES):
        part = FoundBoxes(*(array[rows.numpy()] for array in list_arrays(found)))
        parts.append(encoder.statistics(pictures[rows].numpy(), part))
    return np.concatenate(parts)


def list_arrays(found: FoundBoxes) -> tuple[NDArray[np.generic], ...]:
    """Return the arrays of found boxes, in the order of their fields."""
    return found.scores, found.boxes, found.labels, found.features


def find_in_batches(find_boxes: BoxFinder, pictures: Tensor) -> FoundBoxes:
    """Find the boxes in images, some at a time."""
    parts = [list_arrays(find_boxes(batch.contiguous())) for batch in pictures.split(PROFILE_BATCH_IMAGES)]
    return FoundBoxes(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def build_box_profile(
    find_boxes: BoxFinder,
    reference: SearchedImages,
    class_names: tuple[str, ...],
    threshold: float,
    holdout: SearchedImages | None = None,
    corrupted_image_count: int | None = None,
) -> ReferenceProfile:
    """Build the profile of the images of a reference; `threshold` is the score from which a box counts.

    False alarms are counted on the held-out images, if given. Corruptions are tried on `corrupted_image_count` images,
    or else on as many as there is time for.
    """
    require_large_images(reference.pictures)
    encoder = fit_box_encoder(reference.found, class_names, threshold)
    examples, held_out = reference.encode(encoder), holdout.encode(encoder) if holdout else None
    profile = build_profile_from_examples(encoder.schema, examples, COUNT_NAMES, held_out)
    image_count = corrupted_image_count or affordable_image_count(find_boxes, reference.pictures)
    sample = evenly_spaced_indices(len(examples), image_count)

    def extract(pictures: Tensor) -> ImageFeatures:
        example = SearchedImages(pictures, find_boxes(pictures)).encode(encoder)
        return example.extract(profile.baseline.random_fourier)

    images = reference.pictures[torch.from_numpy(sample)]
    signatures = measure_corruption_responses(extract, images, examples.labels[sample], profile.baseline)
    return replace(profile, encoder=encoder, signatures=signatures)


def extract_box_features(profile: ReferenceProfile, images: SearchedImages) -> ImageFeatures:
    """Return what the charts of a profile need of new images; refuse a profile of another kind."""
    if not isinstance(profile.encoder, BoxEncoder):
        raise build_kind_error(profile, "images with boxes")
    return extract_example_features(profile, images.encode(profile.encoder))
