"""Loading of published models, of any kind of data."""

from pathlib import Path

from equipoise.bundle.folder import verify_bundle
from equipoise.bundle.kinds.base_bundle import Bundle
from equipoise.bundle.kinds.boxes_bundle import BoxesBundle
from equipoise.bundle.kinds.image_bundle import ImageBundle
from equipoise.bundle.kinds.table_bundle import TableBundle
from equipoise.bundle.kinds.text_bundle import TextBundle
from equipoise.bundle.manifest import DATA_NAMES, Kind
from equipoise.errors import EquipoiseError
from equipoise.storage.atomic import download_folder

BUNDLE_TYPES: dict[Kind, type[Bundle]] = {
    "image": ImageBundle,
    "table": TableBundle,
    "text": TextBundle,
    "boxes": BoxesBundle,
}


def load_bundle(path: str | Path, engine_name: str | None = None) -> Bundle:
    """Load the bundle in a local folder or behind a URL such as s3://bucket/vending.

    Return an `ImageBundle`, a `TableBundle`, a `TextBundle` or a `BoxesBundle`, by the kind of its model. `engine_name`
    overrides the engine chosen at publication (the fastest), for comparisons.
    """
    folder = download_folder(path)
    manifest = verify_bundle(folder)
    return BUNDLE_TYPES[manifest.kind](folder, manifest, engine_name)


def load_image_bundle(path: str | Path, purpose: str) -> ImageBundle:
    """Load the bundle of a model of images; refuse any other, for which there is no such `purpose`."""
    bundle = load_bundle(path)
    if isinstance(bundle, ImageBundle):
        return bundle
    raise EquipoiseError(
        "bundle-kind",
        f"cannot {purpose}: {path} is a model of {DATA_NAMES[bundle.kind]}, and this needs images",
        "give the bundle of a model of images",
    )
