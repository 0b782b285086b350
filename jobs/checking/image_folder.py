"""Check of a folder of images."""

import sys
from functools import partial
from pathlib import Path

import msgspec
import torch

from dashboards.page import Page
from dashboards.reports import drift_page
from equipoise.bundle.kinds.image_bundle import ImageBundle
from equipoise.drift.diagnosis.verdict import DatasetVerdict
from equipoise.errors import EquipoiseError
from equipoise.formatting import make_printable
from equipoise.images.orientation import IMAGE_SUFFIXES, list_image_files
from equipoise.images.png import encode_png
from equipoise.images.thumbnails import make_thumbnail, reference_thumbnails
from jobs.checking.checked_data import CheckedData
from jobs.publishing.image_check import diagnose_images


def check_image_folder(model: ImageBundle, folder: Path) -> CheckedData:
    """Return the verdict on a folder of images, with the names of the images that changed most."""
    paths, images = find_images(folder), {}
    for path in paths:
        try:
            images[path] = model.preprocess([path])[0]
        except EquipoiseError as error:
            print(make_printable(f"note: {error}; image skipped"), file=sys.stderr)
    if not images:
        raise EquipoiseError(
            "image-undecodable",
            f"cannot check {folder}: none of its {len(paths)} images can be read",
            "give a folder of images that an image viewer can open",
        )
    names = [path.relative_to(folder).as_posix() for path in images]
    verdict = diagnose_images(model, torch.stack([*images.values()]), names)
    verdict = msgspec.structs.replace(verdict, unread=len(paths) - len(images))
    return CheckedData(verdict, partial(build_image_page, model, folder))


def build_image_page(model: ImageBundle, folder: Path, verdict: DatasetVerdict) -> Page:
    """Build the page of a verdict on a folder of images, with those that changed most and some of the reference."""
    moved = [(make_thumbnail(encode_png(model.preprocess([folder / name])[0])), name) for name in verdict.moved]
    return drift_page(verdict, moved, reference_thumbnails(model.load_reference_arrays(), model.classes))


def find_images(folder: Path) -> list[Path]:
    """Return the paths of the images below a folder, sorted."""
    if not folder.is_dir():
        raise EquipoiseError(
            "path-kind",
            f"cannot check --data {folder}: the model takes images, and this is not a folder",
            "give a folder of images",
        )
    paths = list_image_files(folder)
    if not paths:
        raise EquipoiseError(
            "dataset-invalid",
            f"cannot check --data {folder}: the model takes images, and it holds none ({', '.join(IMAGE_SUFFIXES)})",
            "give another",
        )
    return paths
