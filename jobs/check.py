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

from dashboards import reports as pages
from dashboards.page import written
from equipoise.bundle import bundle
from equipoise.drift.corruptions import undone
from equipoise.drift.diagnosis import dataset_verdict as folder
from equipoise.drift.diagnosis.stream_verdict import named
from equipoise.drift.profiling import build_profile as publishing
from equipoise.drift.reference.profile import Known, known
from equipoise.formatting import number
from equipoise.images.png import encoded
from equipoise.images.thumbnails import thumbnail, usual
from equipoise.storage import atomic as store
from equipoise.workloads.image_folder import ENDINGS
from jobs.cli.paths import require_plain, unusable

STATUS = {"ok": 0, "drift": 3, "unknown": 4}
AT_ONCE = 64  # pictures
GONE = 0.3  # of what differed, at most, is left once a cause has been undone that is proved by it
SHOWN = 6  # charts


@dataclass(frozen=True, kw_only=True)
class Asked:
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
    asked = tyro.cli(Asked, args=arguments)
    try:
        require_plain(asked.bundle, asked.images, asked.out)
        model = bundle.load(asked.bundle)
        found = check(model, asked.images)
        if asked.out:
            left(asked, model, found)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {unusable(error)}", file=sys.stderr)
        return 2
    print(json.dumps(found, allow_nan=False) if asked.json else table(found))
    return STATUS[found["state"]]


def check(model: bundle.Bundle, images: Path) -> dict[str, Any]:
    """The verdict on a folder."""
    paths, pictures = listed(images), {}
    for path in paths:
        try:
            pictures[path] = model.pictures([path])[0]
        except ValueError as error:
            print(f"note: {error}; left out", file=sys.stderr)
    if not pictures:
        raise ValueError(f"none of the {len(paths)} pictures under {images} can be read")
    found = verdict(model, torch.stack([*pictures.values()]))
    names = [path.relative_to(images).as_posix() for path in pictures]
    moved = [names[place] for place in found.get("moved", [])]
    return found | {"unread": len(paths) - len(pictures), "moved": moved}


def left(asked: Asked, model: bundle.Bundle, found: dict[str, Any]) -> None:
    """The verdict and its page in a folder."""
    out = asked.out or Path()
    facts = found | {"bundle": asked.bundle, "folder": str(asked.images), "model": model.name}
    store.write_json(out / "verdict.json", facts)
    moved = [(thumbnail(encoded(model.pictures([asked.images / name])[0])), name) for name in found["moved"]]
    page = pages.of_check(facts, moved, usual(model.reference(), model.classes))
    print(f"page: {written(page, out / 'drift.html')}", file=sys.stderr)


def listed(images: Path) -> list[Path]:
    """Pictures under a folder."""
    if not images.is_dir():
        raise ValueError(f"--images {images} is not a folder: give one with pictures")
    paths = sorted(path for path in images.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
    if not paths:
        raise ValueError(f"--images {images} holds no picture ({', '.join(ENDINGS)})")
    return paths


def verdict(model: bundle.Bundle, pictures: Tensor) -> dict[str, Any]:
    """On pictures as the model takes them."""
    kept = model.reference()
    _, features = answered(model, pictures[:1])
    try:
        held = known(kept, len(model.classes), features.shape[1])
    except ValueError as error:
        return folder.said("unknown", str(error), len(pictures), None, [], None)
    found = judged(model, held, kept, pictures)
    return named(found, model.classes) | {"proof": proof(model, held, kept, pictures, found)}


def judged(model: bundle.Bundle, held: Known, kept: dict[str, Any], pictures: Tensor) -> dict[str, Any]:
    """The verdict, without proof."""
    logits, features = answered(model, pictures)
    base = held.baseline
    told = publishing.Told(pictures, logits, features, logits.argmax(1))
    seen = publishing.looked_at(told, base.waves, base.temperature)
    return folder.judged(held, seen, features, kept["features"], kept["logits"].argmax(1))


def answered(model: bundle.Bundle, pictures: Tensor) -> tuple[Any, Any]:
    """What the model says, a few at a time."""
    parts = [model.run(some) for some in pictures.split(AT_ONCE)]
    return tuple(torch.cat([part[place] for part in parts]).numpy() for place in (0, 1))  # type: ignore[return-value]


def proof(model: bundle.Bundle, held: Known, kept: Any, pictures: Tensor, found: dict[str, Any]) -> Any:
    """The causes undone on the pictures, and how much of what differed is left then; null where they cannot be."""
    changed = pictures
    for effect in found["effects"]:
        back = undone(changed, effect["cause"], effect["detail"], effect["value"])
        if back is None:
            return None
        changed = back
    if not found["effects"]:
        return None
    again = judged(model, held, kept, changed)
    left = length(again) / max(length(found), 1e-9)
    return {"left": round(left, 4), "proved": left <= GONE, "state": again["state"]}


def length(found: dict[str, Any]) -> float:
    """How far charts are above what chance gives."""
    return float(np.sqrt(sum(max(one["value"] - one["threshold"], 0) for one in found["charts"])))


def table(found: dict[str, Any]) -> str:
    """For people."""
    lines = [f"{found['state']}: {found['why']}"]
    if found["accuracy"] != "unknown":
        low, value, high = (found["accuracy"][name] for name in ("low", "value", "high"))
        lines.append(f"accuracy about {value:.0%} ({low:.0%} to {high:.0%})")
    elif found["state"] == "drift":
        lines.append("accuracy unknown: label 30 to 100 of these pictures to learn it")
    if found.get("proof"):
        lines.append(f"undone on these pictures, {found['proof']['left']:.0%} of the drift is left")
    if found.get("support") and found["support"]["moved"]:
        lines.append(
            f"only {found['support']['share']:.0%} of the reference is like these pictures: collect and label some"
        )
    lines.append(f"{'chart':18}{'value':>8}{'alarm at':>10}   effect")
    for one in found["charts"][:SHOWN]:
        lines.append(f"{one['name']:18}{one['value']:8.1f}{one['threshold']:10.1f}   {worded(one['effect'])}")
    return "\n".join(lines)


def worded(effect: dict[str, Any]) -> str:
    """An effect with its interval."""
    ends = "" if effect["low"] is None else f" ({number(effect['low'])} to {number(effect['high'])})"
    return f"{number(effect['value'])}{ends} {effect['unit']}"


if __name__ == "__main__":
    sys.exit(main())
