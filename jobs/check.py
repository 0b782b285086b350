"""Say whether pictures look like those that a bundle was judged on, and if not, what changed.

Exit status: 0 they do, 3 they drifted, 4 nobody can tell, 2 asked for what cannot be.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from torch import Tensor

from dashboards.page import write_page
from dashboards.reports import drift_page
from equipoise.bundle.bundle import Bundle, load_bundle
from equipoise.drift.corruptions import invert_corruption
from equipoise.drift.diagnosis.dataset_verdict import build_verdict, compute_dataset_verdict
from equipoise.drift.diagnosis.stream_verdict import with_class_names
from equipoise.drift.profiling.build_profile import LabelledOutputs, extract_features
from equipoise.drift.reference.profile import ReferenceProfile, profile_from_arrays
from equipoise.formatting import format_number
from equipoise.images.png import encode_png
from equipoise.images.thumbnails import make_thumbnail, reference_thumbnails
from equipoise.storage.atomic import write_json
from equipoise.workloads.image_folder import IMAGE_SUFFIXES
from jobs.cli.paths import describe_os_error, validate_locations

EXIT_STATUS_BY_STATE = {"ok": 0, "drift": 3, "unknown": 4}
PREDICT_BATCH_SIZE = 64  # pictures
MAX_REMAINING_SHARE = 0.3  # of what differed, at most, is left once a cause has been undone that is proved by it
MAX_LISTED_CHARTS = 6  # charts


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    __doc__ = __doc__

    bundle: str
    """folder or URL of a published model"""
    images: Path
    """folder of pictures, at any depth"""
    json: bool = False
    """print one JSON object instead of a table"""
    out: Path | None = None
    """folder for verdict.json and a page with the pictures that show what changed; none if not given"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status says what was found."""
    asked = tyro.cli(CheckOptions, args=arguments)
    try:
        validate_locations(asked.bundle, asked.images, asked.out)
        model = load_bundle(asked.bundle)
        found = check_image_folder(model, asked.images)
        if asked.out:
            write_drift_report(asked, model, found)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {describe_os_error(error)}", file=sys.stderr)
        return 2
    print(json.dumps(found, allow_nan=False) if asked.json else format_verdict_table(found))
    return EXIT_STATUS_BY_STATE[found["state"]]


def check_image_folder(model: Bundle, image_folder: Path) -> dict[str, Any]:
    """The verdict on a folder."""
    paths, pictures = find_images(image_folder), {}
    for path in paths:
        try:
            pictures[path] = model.preprocess([path])[0]
        except ValueError as error:
            print(f"note: {error}; left out", file=sys.stderr)
    if not pictures:
        raise ValueError(f"none of the {len(paths)} pictures under {image_folder} can be read")
    found = diagnose_images(model, torch.stack([*pictures.values()]))
    names = [path.relative_to(image_folder).as_posix() for path in pictures]
    moved = [names[place] for place in found.get("moved", [])]
    return found | {"unread": len(paths) - len(pictures), "moved": moved}


def write_drift_report(options: CheckOptions, model: Bundle, verdict: dict[str, Any]) -> None:
    """The verdict and its page in a folder."""
    out = options.out or Path()
    facts = verdict | {"bundle": options.bundle, "folder": str(options.images), "model": model.name}
    write_json(out / "verdict.json", facts)
    moved = [
        (make_thumbnail(encode_png(model.preprocess([options.images / name])[0])), name) for name in verdict["moved"]
    ]
    page = drift_page(facts, moved, reference_thumbnails(model.load_reference_arrays(), model.classes))
    print(f"page: {write_page(page, out / 'drift.html')}", file=sys.stderr)


def find_images(image_folder: Path) -> list[Path]:
    """Pictures under a folder."""
    if not image_folder.is_dir():
        raise ValueError(f"--images {image_folder} is not a folder: give one with pictures")
    paths = sorted(path for path in image_folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())
    if not paths:
        raise ValueError(f"--images {image_folder} holds no picture ({', '.join(IMAGE_SUFFIXES)})")
    return paths


def diagnose_images(model: Bundle, images: Tensor) -> dict[str, Any]:
    """On pictures as the model takes them."""
    kept = model.load_reference_arrays()
    _, features = predict_in_batches(model, images[:1])
    try:
        held = profile_from_arrays(kept, len(model.classes), features.shape[1])
    except ValueError as error:
        return build_verdict("unknown", str(error), len(images), None, [], None)
    found = diagnose_without_proof(model, held, kept, images)
    return with_class_names(found, model.classes) | {"proof": verify_by_inversion(model, held, kept, images, found)}


def diagnose_without_proof(
    model: Bundle, profile: ReferenceProfile, reference: dict[str, Any], images: Tensor
) -> dict[str, Any]:
    """The verdict, without proof."""
    logits, features = predict_in_batches(model, images)
    base = profile.baseline
    told = LabelledOutputs(images, logits, features, logits.argmax(1))
    seen = extract_features(told, base.random_fourier, base.temperature)
    return compute_dataset_verdict(profile, seen, features, reference["features"], reference["logits"].argmax(1))


def predict_in_batches(model: Bundle, images: Tensor) -> tuple[Any, Any]:
    """What the model says, a few at a time."""
    parts = [model.run_engine(some) for some in images.split(PREDICT_BATCH_SIZE)]
    return tuple(torch.cat([part[place] for part in parts]).numpy() for place in (0, 1))  # type: ignore[return-value]


def verify_by_inversion(
    model: Bundle, profile: ReferenceProfile, reference: Any, images: Tensor, verdict: dict[str, Any]
) -> Any:
    """The causes undone on the pictures, and how much of what differed is left then; null where they cannot be."""
    changed = images
    for effect in verdict["effects"]:
        back = invert_corruption(changed, effect["cause"], effect["detail"], effect["value"])
        if back is None:
            return None
        changed = back
    if not verdict["effects"]:
        return None
    again = diagnose_without_proof(model, profile, reference, changed)
    left = chart_excess_norm(again) / max(chart_excess_norm(verdict), 1e-9)
    return {"left": round(left, 4), "proved": left <= MAX_REMAINING_SHARE, "state": again["state"]}


def chart_excess_norm(verdict: dict[str, Any]) -> float:
    """How far charts are above what chance gives."""
    return float(np.sqrt(sum(max(one["value"] - one["threshold"], 0) for one in verdict["charts"])))


def format_verdict_table(verdict: dict[str, Any]) -> str:
    """For people."""
    lines = [f"{verdict['state']}: {verdict['why']}"]
    if verdict["accuracy"] != "unknown":
        low, value, high = (verdict["accuracy"][name] for name in ("low", "value", "high"))
        lines.append(f"accuracy about {value:.0%} ({low:.0%} to {high:.0%})")
    elif verdict["state"] == "drift":
        lines.append("accuracy unknown: label 30 to 100 of these pictures to learn it")
    if verdict.get("proof"):
        lines.append(f"undone on these pictures, {verdict['proof']['left']:.0%} of the drift is left")
    if verdict.get("support") and verdict["support"]["moved"]:
        lines.append(
            f"only {verdict['support']['share']:.0%} of the reference is like these pictures: collect and label some"
        )
    lines.append(f"{'chart':18}{'value':>8}{'alarm at':>10}   effect")
    for one in verdict["charts"][:MAX_LISTED_CHARTS]:
        lines.append(f"{one['name']:18}{one['value']:8.1f}{one['threshold']:10.1f}   {format_effect(one['effect'])}")
    return "\n".join(lines)


def format_effect(effect: dict[str, Any]) -> str:
    """An effect with its interval."""
    ends = "" if effect["low"] is None else f" ({format_number(effect['low'])} to {format_number(effect['high'])})"
    return f"{format_number(effect['value'])}{ends} {effect['unit']}"


if __name__ == "__main__":
    sys.exit(main())
