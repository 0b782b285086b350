"""Check of a folder of images in which a model finds boxes."""

import sys
from functools import partial
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from dashboards.page import Page
from dashboards.reports import drift_page
from equipoise.boxes.box_thumbnails import boxed_thumbnails, draw_found_boxes
from equipoise.bundle.kinds.boxes_bundle import BoxesBundle
from equipoise.bundle.kinds.boxes_input import BOX_LABELS_TENSOR, BOX_SCORES_TENSOR, BOXES_TENSOR
from equipoise.bundle.kinds.image_input import FEATURES_TENSOR
from equipoise.drift.diagnosis.dataset_verdict import compute_dataset_verdict
from equipoise.drift.diagnosis.verdict import DatasetVerdict
from equipoise.drift.features.box_stats import BoxEncoder, FoundBoxes
from equipoise.drift.profiling.box_profile import SearchedImages, extract_box_features, find_in_batches
from equipoise.drift.profiling.bundle_profile import load_bundle_profile
from equipoise.errors import EquipoiseError
from equipoise.formatting import make_printable
from equipoise.images.placement import load_placed_image
from equipoise.images.png import encode_png
from jobs.checking.checked_data import CheckedData
from jobs.checking.image_folder import find_images, require_readable


def check_boxed_images(model: BoxesBundle, folder: Path) -> CheckedData:
    """Return the verdict on a folder of images, with the names of the images that changed most."""
    paths, images = find_images(folder), {}
    for path in paths:
        try:
            images[path], _ = load_placed_image(path, model.shape[1])
        except EquipoiseError as error:
            print(make_printable(f"note: {error}; image skipped"), file=sys.stderr)
    require_readable(folder, len(images), len(paths))
    names = [path.relative_to(folder).as_posix() for path in images]
    verdict = diagnose_boxed_images(model, torch.stack([*images.values()]), names)
    verdict = msgspec.structs.replace(verdict, unread=len(paths) - len(images))
    return CheckedData(verdict, partial(build_boxes_page, model, folder))


def diagnose_boxed_images(model: BoxesBundle, images: Tensor, names: list[str]) -> DatasetVerdict:
    """Return the verdict on images as the model takes them."""
    try:
        profile = load_bundle_profile(model)
    except EquipoiseError as error:
        if error.code != "reference-unusable":
            raise
        return DatasetVerdict(kind="boxes", has_accuracy=False, state="unknown", why=str(error), images=len(images))
    arrays = model.load_reference_arrays()
    outputs = BOX_SCORES_TENSOR, BOXES_TENSOR, BOX_LABELS_TENSOR, FEATURES_TENSOR
    reference = FoundBoxes(*(arrays[name] for name in outputs))
    found = find_in_batches(lambda batch: FoundBoxes(*(part.numpy() for part in model.run_engine(batch))), images)
    if not isinstance(profile.encoder, BoxEncoder):
        raise TypeError("the profile is not of images with boxes")
    current = extract_box_features(profile, SearchedImages(images, found))
    usual_classes = profile.encoder.classes(reference)
    return compute_dataset_verdict(profile, current, found.features, reference.features, usual_classes, names)


def build_boxes_page(model: BoxesBundle, folder: Path, verdict: DatasetVerdict) -> Page:
    """Build the page of a verdict, with the images that changed most and some of the reference, each with its boxes."""
    moved = [(draw_file(model, folder / name), name) for name in verdict.moved]
    return drift_page(verdict, moved, boxed_thumbnails(model.load_reference_arrays(), model.classes, model.threshold))


def draw_file(model: BoxesBundle, path: Path) -> bytes:
    """Return an image file as a thumbnail with the boxes that the model finds in it."""
    image, _ = load_placed_image(path, model.shape[1])
    scores, boxes, labels, _ = model.run_engine(image[None])
    return draw_found_boxes(encode_png(image), model.read_boxes(scores[0], boxes[0], labels[0]))
