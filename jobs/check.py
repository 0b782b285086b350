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

import msgspec
import torch

from dashboards.page import write_page
from dashboards.reports import drift_page
from equipoise.bundle.bundle import load_image_bundle
from equipoise.bundle.kinds.image_bundle import ImageBundle
from equipoise.command_line import command
from equipoise.drift.diagnosis.accuracy_estimate import AccuracyEstimate
from equipoise.drift.diagnosis.verdict import ChartEffect, DatasetVerdict
from equipoise.errors import EquipoiseError
from equipoise.formatting import format_number, format_share, make_printable
from equipoise.images.png import encode_png
from equipoise.images.thumbnails import make_thumbnail, reference_thumbnails
from equipoise.runs.folder import require_writable
from equipoise.storage.atomic import write_json
from equipoise.storage.user_paths import require_local_paths
from equipoise.workloads.image_folder import IMAGE_SUFFIXES, list_image_files
from jobs.cli.option_parser import parse_options
from jobs.cli.output_folder import require_no_other_results
from jobs.cli.paths import LocalPath, OptionalLocalPath, validate_locations
from jobs.publishing.image_check import diagnose_images

EXIT_STATUS_BY_STATE = {"ok": 0, "drift": 3, "unknown": 4}
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
    model = load_image_bundle(options.bundle, "check images")
    if options.out:
        require_writable(options.out)
    verdict = check_image_folder(model, options.images)
    if options.out:
        write_drift_report(options, model, verdict)
    print(json.dumps(verdict.to_json(), allow_nan=False) if options.json else format_verdict_table(verdict))
    return EXIT_STATUS_BY_STATE[verdict.state]


def check_image_folder(model: ImageBundle, image_folder: Path) -> DatasetVerdict:
    """Return the verdict on a folder of images, with the names of the images that changed most."""
    paths, images = find_images(image_folder), {}
    for path in paths:
        try:
            images[path] = model.preprocess([path])[0]
        except EquipoiseError as error:
            print(make_printable(f"note: {error}; image skipped"), file=sys.stderr)
    if not images:
        raise EquipoiseError(
            "image-undecodable",
            f"cannot check {image_folder}: none of its {len(paths)} images can be read",
            "give a folder of images that an image viewer can open",
        )
    names = [path.relative_to(image_folder).as_posix() for path in images]
    verdict = diagnose_images(model, torch.stack([*images.values()]), names)
    return msgspec.structs.replace(verdict, unread=len(paths) - len(images))


def write_drift_report(options: CheckOptions, model: ImageBundle, verdict: DatasetVerdict) -> None:
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


def format_verdict_table(verdict: DatasetVerdict) -> str:
    """Format the verdict as terminal text, with a table of its highest charts."""
    lines = [f"{verdict.state}: {verdict.why}"]
    if condition := verdict.describe_condition():
        lines.append(f"condition: {condition}")
    if isinstance(accuracy := verdict.accuracy, AccuracyEstimate):
        lines.append(f"accuracy about {accuracy.value:.0%} ({accuracy.low:.0%} to {accuracy.high:.0%})")
    elif verdict.state == "drift":
        lines.append("accuracy unknown: label 30 to 100 of these images to measure it")
    if runner_up := verdict.runner_up:
        share = format_share(runner_up.explained)
        lines.append(f"runner-up: {runner_up.cause} in place of the last cause would explain {share}")
    if verdict.proof:
        lines.append(f"after undoing the causes on these images, {verdict.proof.left:.0%} of the drift is left")
    if verdict.support and verdict.support.moved:
        share = f"{verdict.support.share:.0%}"
        lines.append(f"only {share} of the reference is like these images: collect more like them and label them")
    lines.append(f"{'chart':18}{'value':>8}{'alarm threshold':>17}   effect")
    for chart in verdict.charts[:MAX_LISTED_CHARTS]:
        effect = format_effect(chart.effect) if chart.effect else ""
        lines.append(f"{chart.name:18}{chart.value:z8.1f}{chart.threshold:17.1f}   {effect}")
    return "\n".join(map(make_printable, lines))


def format_effect(effect: ChartEffect) -> str:
    """Format an effect's size with its interval and unit."""
    interval = "" if effect.low is None else f" ({format_number(effect.low)} to {format_number(effect.high)})"
    return f"{format_number(effect.value)}{interval} {effect.unit}"


if __name__ == "__main__":
    sys.exit(main())
