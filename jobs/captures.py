"""List the requests kept for labelling, label them, and export the labelled ones as a folder to train on.

Without --labels and --out it only lists the captures. --labels writes labels into the captures, --out writes the
labelled images as OUT/CLASS/ID.png. If a row of --labels is wrong, no label is given; the exported folder appears only
when it is complete. An interrupted command can be run again.

Exit status: 0 done; 2 wrong options or files.
"""

import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from equipoise.bundle.manifest import verify_bundle
from equipoise.captures.capture import CAPTURE_POOLS, CaptureMetadata
from equipoise.captures.store import CaptureStore
from equipoise.command_line import command
from equipoise.errors import EquipoiseError
from equipoise.storage.atomic import download_folder
from equipoise.storage.path_errors import report_path_errors
from jobs.cli.option_parser import parse_options
from jobs.cli.paths import require_capture_folder, validate_locations

MAX_LISTED_CAPTURES = 10  # captures printed one by one


@dataclass(frozen=True, kw_only=True)
class CapturesOptions:
    __doc__ = __doc__

    capture_dir: str
    """folder or URL (s3://...) of the captures"""
    labels: Path | None = None
    """CSV with the columns id and label; if one row is wrong, no label is given"""
    bundle: str | None = None
    """bundle whose classes the labels must be among; all classes that captures have scores for if not given"""
    out: Path | None = None
    """folder for the labelled captures, OUT/CLASS/ID.png, to train on with --workload folder; must not exist"""
    json: bool = False
    """print JSON instead of text"""


@command()
def main() -> int:
    """Run the command and return its exit status."""
    options = parse_options(CapturesOptions)
    result = label_and_export_captures(options)
    print(json.dumps(result, indent=1, default=CaptureMetadata.to_json) if options.json else format_result(result))
    return 0


def label_and_export_captures(options: CapturesOptions) -> dict[str, Any]:
    """Label and export captures as requested and return the counts, or a summary if neither was requested."""
    validate_locations(options.capture_dir, options.labels, options.bundle, options.out)
    require_capture_folder(options.capture_dir)
    captures = CaptureStore(options.capture_dir)
    result: dict[str, Any] = {}
    if options.labels:
        result["labelled"] = captures.label_from_csv(
            read_labels_csv(options.labels), allowed_labels(captures, options.bundle)
        )
    if options.out:
        classes = load_bundle_classes(options.bundle) if options.bundle else None
        result |= {
            "exported": captures.export_labelled(options.out, classes),
            "out": str(options.out),
            "skipped": captures.skipped_files,
        }
    return result or summarize_captures(captures)


def read_labels_csv(path: Path) -> str:
    """Read the text of a CSV of labels."""
    try:
        with report_path_errors(f"cannot read --labels {path}", "give a CSV of id,label"):
            return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise EquipoiseError(
            "file-damaged", f"cannot read --labels {path}: it is not UTF-8 text", "give a CSV of id,label"
        ) from None


def allowed_labels(captures: CaptureStore, bundle_location: str | None) -> list[str]:
    """Return the class names that a label may be: the bundle's, or all that captures have scores for."""
    if bundle_location:
        return load_bundle_classes(bundle_location)
    names = list(dict.fromkeys(name for capture in captures.list_captures(limit=None) for name in capture.scores))
    if not names:
        raise EquipoiseError(
            "captures-empty",
            f"cannot label captures: {captures.location} holds none",
            "give the folder that a service filled",
        )
    return names


def load_bundle_classes(bundle_location: str) -> list[str]:
    """Read the class names of a bundle in a folder or behind a URL."""
    return verify_bundle(download_folder(bundle_location)).classes


def summarize_captures(captures: CaptureStore) -> dict[str, Any]:
    """Count the captures by pool and label, and list the ones most useful to label."""
    listed = captures.list_captures(limit=None)
    counts = Counter((capture.pool, capture.label_given is not None) for capture in listed)
    pools = {pool: {"labelled": counts[pool, True], "unlabelled": counts[pool, False]} for pool in CAPTURE_POOLS}
    return {"captures": pools, "skipped": captures.skipped_files, "first": listed[:MAX_LISTED_CAPTURES]}


def format_result(result: dict[str, Any]) -> str:
    """Format the result as terminal text."""
    lines = []
    if "labelled" in result:
        lines.append(f"{result['labelled']} labelled")
    if "exported" in result:
        counts = ", ".join(f"{count} {name}" for name, count in result["exported"].items())
        lines.append(f"{result['out']}: {sum(result['exported'].values())} images ({counts})")
    for pool, counts in result.get("captures", {}).items():
        lines.append(f"{pool}: {counts['unlabelled']} to label, {counts['labelled']} labelled")
    lines += [format_capture(capture) for capture in result.get("first", [])]
    if result.get("skipped"):
        lines.append(f"files skipped because they are not complete captures: {result['skipped']}")
    return "\n".join(lines)


def format_capture(capture: CaptureMetadata) -> str:
    """Format a capture as one line: id, pool, predicted label with its score, and label given."""
    label_given = f", labelled {capture.label_given}" if capture.label_given is not None else ""
    return f"  {capture.id}  {capture.pool:5}  {capture.label} {capture.score:.2f}{label_given}"


if __name__ == "__main__":
    sys.exit(main())
