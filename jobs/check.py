"""Check whether images look like the reference of a bundle, and if they do not, name what changed.

Each cause found is checked by undoing it on the images: it is proved if little of the drift is left. The verdict is
printed; --out also writes verdict.json and drift.html, a page that shows the images that changed most. The command
changes nothing else and can be run again at any time, which replaces both files.

Exit status: 0 no drift; 2 wrong options or files; 3 drift; 4 the images do not allow a verdict.
"""

from jobs import prepare_process

if __name__ == "__main__":
    prepare_process()

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from dashboards.page import write_page
from dashboards.reports import drift_page
from equipoise.bundle.bundle import Bundle, load_bundle
from equipoise.command_line import command
from equipoise.drift.corruptions import invert_corruption
from equipoise.drift.diagnosis.accuracy_estimate import AccuracyEstimate
from equipoise.drift.diagnosis.dataset_verdict import compute_dataset_verdict
from equipoise.drift.diagnosis.verdict import ChartEffect, DatasetVerdict, InversionProof
from equipoise.drift.profiling.build_profile import LabelledOutputs, extract_features
from equipoise.drift.reference.profile import ReferenceProfile, profile_from_arrays
from equipoise.errors import EquipoiseError
from equipoise.formatting import format_number, make_printable
from equipoise.images.png import encode_png
from equipoise.images.thumbnails import make_thumbnail, reference_thumbnails
from equipoise.runs.folder import require_writable
from equipoise.storage.atomic import write_json
from equipoise.storage.user_paths import require_local_paths
from equipoise.type_aliases import AnyArray
from equipoise.workloads.image_folder import IMAGE_SUFFIXES, list_image_files
from jobs.cli.option_parser import parse_options
from jobs.cli.output_folder import require_no_other_results
from jobs.cli.paths import LocalPath, OptionalLocalPath, validate_locations

EXIT_STATUS_BY_STATE = {"ok": 0, "drift": 3, "unknown": 4}
PREDICT_BATCH_SIZE = 64  # images
MAX_REMAINING_SHARE = 0.3  # of the drift, left after a cause was undone: with more the cause is not proved
MAX_LISTED_CHARTS = 6  # charts


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    __doc__ = __doc__

    bundle: str
    """folder or URL of a published model"""
    images: LocalPath
    """folder of images, at any depth"""
    json: bool = False
    """print one JSON object instead of a table"""
    out: OptionalLocalPath = None
    """folder for verdict.json and drift.html, a page with the images that changed most; none if not given"""


@command()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status, which tells the verdict."""
    options = parse_options(CheckOptions, arguments)
    validate_locations(options.bundle)
    require_local_paths({"--images": options.images, "--out": options.out})
    if options.out:
        require_no_other_results(options.out, "check")
    model = load_bundle(options.bundle)
    if options.out:
        require_writable(options.out)
    verdict = check_image_folder(model, options.images)
    if options.out:
        write_drift_report(options, model, verdict)
    print(json.dumps(verdict.to_json(), allow_nan=False) if options.json else format_verdict_table(verdict))
    return EXIT_STATUS_BY_STATE[verdict.state]


def check_image_folder(model: Bundle, image_folder: Path) -> DatasetVerdict:
    """Return the verdict on a folder of images, with the names of the images that changed most."""
    paths, images = find_images(image_folder), {}
    for path in paths:
        try:
            images[path] = model.preprocess([path])[0]
        except EquipoiseError as error:
            print(make_printable(f"note: {error}; image skipped"), file=sys.stderr)
    if not images:
        raise EquipoiseError(
            "image-undecodable", f"cannot check {image_folder}: none of its {len(paths)} images can be read"
        )
    names = [path.relative_to(image_folder).as_posix() for path in images]
    verdict = diagnose_images(model, torch.stack([*images.values()]), names)
    return msgspec.structs.replace(verdict, unread=len(paths) - len(images))


def write_drift_report(options: CheckOptions, model: Bundle, verdict: DatasetVerdict) -> None:
    """Write verdict.json and its page drift.html to the output folder."""
    out = options.out or Path()
    report = msgspec.structs.replace(verdict, bundle=options.bundle, folder=str(options.images), model=model.name)
    write_json(out / "verdict.json", report.to_json())
    moved = [(make_thumbnail(encode_png(model.preprocess([options.images / name])[0])), name) for name in verdict.moved]
    page = drift_page(report, moved, reference_thumbnails(model.load_reference_arrays(), model.classes))
    print(f"page: {write_page(page, out / 'drift.html')}", file=sys.stderr)


def find_images(image_folder: Path) -> list[Path]:
    """Return the paths of the images below a folder, sorted."""
    if not image_folder.is_dir():
        raise EquipoiseError(
            "path-kind", f"cannot read --images {image_folder}: it is not a folder", "give a folder of images"
        )
    paths = list_image_files(image_folder)
    if not paths:
        raise EquipoiseError(
            "dataset-invalid",
            f"cannot check --images {image_folder}: it holds no image ({', '.join(IMAGE_SUFFIXES)})",
            "give another",
        )
    return paths


def diagnose_images(model: Bundle, images: Tensor, names: list[str]) -> DatasetVerdict:
    """Return the verdict on preprocessed images, with the proof of its causes."""
    reference = model.load_reference_arrays()
    _, features = predict_in_batches(model, images[:1])
    try:
        profile = profile_from_arrays(reference, model.classes, features.shape[1])
    except EquipoiseError as error:
        return DatasetVerdict(state="unknown", why=str(error), images=len(images))
    verdict = diagnose_without_proof(model, profile, reference, images, names)
    proof = verify_by_inversion(model, profile, reference, images, verdict)
    return msgspec.structs.replace(verdict, proof=proof)


def diagnose_without_proof(
    model: Bundle,
    profile: ReferenceProfile,
    reference: dict[str, AnyArray],
    images: Tensor,
    names: list[str] | None = None,
) -> DatasetVerdict:
    """Return the verdict on preprocessed images, without undoing its causes."""
    logits, features = predict_in_batches(model, images)
    baseline = profile.baseline
    outputs = LabelledOutputs(images, logits, features, logits.argmax(1))
    image_features = extract_features(outputs, baseline.random_fourier, baseline.temperature)
    return compute_dataset_verdict(
        profile, image_features, features, reference["features"], reference["logits"].argmax(1), names
    )


def predict_in_batches(model: Bundle, images: Tensor) -> tuple[Any, Any]:
    """Return the model's logits and features of images, computed in batches of PREDICT_BATCH_SIZE."""
    parts = [model.run_engine(batch) for batch in images.split(PREDICT_BATCH_SIZE)]
    return tuple(torch.cat([part[index] for part in parts]).numpy() for index in (0, 1))  # type: ignore[return-value]


def verify_by_inversion(
    model: Bundle,
    profile: ReferenceProfile,
    reference: dict[str, AnyArray],
    images: Tensor,
    verdict: DatasetVerdict,
) -> InversionProof | None:
    """Undo the verdict's causes on the images and return the share of the drift left; None if one cannot be undone."""
    restored = images
    for effect in verdict.effects:
        inverted = invert_corruption(restored, effect.cause, effect.detail, effect.value)
        if inverted is None:
            return None
        restored = inverted
    if not verdict.effects:
        return None
    new_verdict = diagnose_without_proof(model, profile, reference, restored)
    left = chart_excess_norm(new_verdict) / max(chart_excess_norm(verdict), 1e-9)
    return InversionProof(left=round(left, 4), proved=left <= MAX_REMAINING_SHARE, state=new_verdict.state)


def chart_excess_norm(verdict: DatasetVerdict) -> float:
    """Return the Euclidean norm of the charts' excess over their alarm thresholds."""
    return float(np.sqrt(sum(max(chart.value - chart.threshold, 0) for chart in verdict.charts)))


def format_verdict_table(verdict: DatasetVerdict) -> str:
    """Format the verdict as terminal text, with a table of its highest charts."""
    lines = [f"{verdict.state}: {verdict.why}"]
    if isinstance(accuracy := verdict.accuracy, AccuracyEstimate):
        lines.append(f"accuracy about {accuracy.value:.0%} ({accuracy.low:.0%} to {accuracy.high:.0%})")
    elif verdict.state == "drift":
        lines.append("accuracy unknown: label 30 to 100 of these images to measure it")
    if verdict.proof:
        lines.append(f"after undoing the causes on these images, {verdict.proof.left:.0%} of the drift is left")
    if verdict.support and verdict.support.moved:
        share = verdict.support.share
        lines.append(f"only {share:.0%} of the reference is like these images: collect more like them and label them")
    lines.append(f"{'chart':18}{'value':>8}{'alarm threshold':>17}   effect")
    for chart in verdict.charts[:MAX_LISTED_CHARTS]:
        effect = format_effect(chart.effect) if chart.effect else ""
        lines.append(f"{chart.name:18}{chart.value:8.1f}{chart.threshold:17.1f}   {effect}")
    return "\n".join(map(make_printable, lines))


def format_effect(effect: ChartEffect) -> str:
    """Format an effect's size with its interval and unit."""
    interval = "" if effect.low is None else f" ({format_number(effect.low)} to {format_number(effect.high)})"
    return f"{format_number(effect.value)}{interval} {effect.unit}"


if __name__ == "__main__":
    sys.exit(main())
