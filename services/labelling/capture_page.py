"""Labelling page of a prediction service: the requests that it keeps, at /label."""

from collections.abc import Collection, Sequence
from pathlib import Path

from equipoise.bundle.kinds.base_bundle import Bundle
from equipoise.drift.features.statistic_schema import KINDS_OF_IMAGES
from equipoise.errors import EquipoiseError
from services.labelling.application import LabellingApplication
from services.labelling.capture_session import open_capture_session


def build_capture_page(
    capture_dir: str, label_dir: str, bundles: Sequence[Bundle], api_keys: tuple[str, ...]
) -> LabellingApplication:
    """Build the page, which takes the keys of the service; the first model of images says what its labels are."""
    require_images({bundle.kind for bundle in bundles})
    bundle = next(bundle for bundle in bundles if bundle.kind in KINDS_OF_IMAGES)
    kind = "boxes" if bundle.kind == "boxes" else "class"
    session = open_capture_session(Path(capture_dir), Path(label_dir), kind, bundle.classes)
    return LabellingApplication(session, api_keys)


def require_images(kinds: Collection[str]) -> None:
    """Refuse to label the requests of models none of which takes images."""
    if kinds and not set(kinds) & {*KINDS_OF_IMAGES}:
        raise EquipoiseError(
            "option-conflict",
            f"cannot label requests with label_dir: no model takes images, only {' and '.join(sorted(kinds))}",
            "leave it out",
        )
