"""Requests kept for labelling: list them, give them labels, and export what is labelled as a folder to train on."""

import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from equipoise.bundle.manifest import verify_bundle
from equipoise.captures.capture import CAPTURE_POOLS
from equipoise.captures.store import CaptureStore
from equipoise.storage.atomic import download_folder
from jobs.cli.paths import describe_os_error, require_capture_folder, validate_locations

MAX_LISTED_CAPTURES = 10  # captures shown


@dataclass(frozen=True, kw_only=True)
class CapturesOptions:
    __doc__ = __doc__

    capture_dir: str
    """folder or URL (s3://...) of the captures"""
    labels: Path | None = None
    """CSV of id,label: labels to give, all of them or none"""
    bundle: str | None = None
    """whose classes labels are from; all classes that captures were scored for if not given"""
    out: Path | None = None
    """folder for labelled captures, OUT/CLASS/ID.png, to train on by --workload folder; must not exist"""
    json: bool = False
    """print JSON"""


def main() -> int:
    """Exit status: 0 done, 2 asked for what cannot be."""
    asked = tyro.cli(CapturesOptions)
    try:
        found = label_and_export_captures(asked)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {describe_os_error(error)}", file=sys.stderr)
        return 2
    print(json.dumps(found, indent=1) if asked.json else format_result(found))
    return 0


def label_and_export_captures(options: CapturesOptions) -> dict[str, Any]:
    """What was labelled and exported, or what there is if neither was asked for."""
    validate_locations(options.capture_dir, options.labels, options.bundle, options.out)
    require_capture_folder(options.capture_dir)
    captures = CaptureStore(options.capture_dir)
    found: dict[str, Any] = {}
    if options.labels:
        found["labelled"] = captures.label_from_csv(
            read_labels_csv(options.labels), allowed_labels(captures, options.bundle)
        )
    if options.out:
        of = load_bundle_classes(options.bundle) if options.bundle else None
        found |= {
            "exported": captures.export_labelled(options.out, of),
            "out": str(options.out),
            "skipped": captures.skipped_files,
        }
    return found or summarize_captures(captures)


def read_labels_csv(path: Path) -> str:
    """The text of a CSV."""
    try:
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise ValueError(f"--labels {path} cannot be read ({error.strerror}): give a CSV of id,label") from None
    except UnicodeDecodeError:
        raise ValueError(f"--labels {path} is not a text: give a CSV of id,label, in UTF-8") from None


def allowed_labels(captures: CaptureStore, bundle_location: str | None) -> list[str]:
    """Names that a label may have."""
    if bundle_location:
        return load_bundle_classes(bundle_location)
    found = list(dict.fromkeys(name for one in captures.list_captures(limit=None) for name in one["scores"]))
    if not found:
        raise ValueError(f"{captures.location} holds no captures: there is nothing to label")
    return found


def load_bundle_classes(bundle_location: str) -> list[str]:
    """Of a bundle, in a folder or behind a URL."""
    names: list[str] = verify_bundle(download_folder(bundle_location))["classes"]
    return names


def summarize_captures(captures: CaptureStore) -> dict[str, Any]:
    """What there is."""
    held = captures.list_captures(limit=None)
    counts = Counter((one["pool"], one["label_given"] is not None) for one in held)
    pools = {pool: {"labelled": counts[pool, True], "unlabelled": counts[pool, False]} for pool in CAPTURE_POOLS}
    return {"captures": pools, "skipped": captures.skipped_files, "first": held[:MAX_LISTED_CAPTURES]}


def format_result(result: dict[str, Any]) -> str:
    """For people."""
    lines = []
    if "labelled" in result:
        lines.append(f"{result['labelled']} labelled")
    if "exported" in result:
        counts = ", ".join(f"{count} {name}" for name, count in result["exported"].items())
        lines.append(f"{result['out']}: {sum(result['exported'].values())} pictures ({counts})")
    for pool, counts in result.get("captures", {}).items():
        lines.append(f"{pool}: {counts['unlabelled']} to label, {counts['labelled']} labelled")
    lines += [format_capture(one) for one in result.get("first", [])]
    if result.get("skipped"):
        lines.append(f"files passed over that are no whole capture: {result['skipped']}")
    return "\n".join(lines)


def format_capture(capture: dict[str, Any]) -> str:
    """A capture, on a line."""
    given = f", labelled {capture['label_given']}" if capture["label_given"] is not None else ""
    return f"  {capture['id']}  {capture['pool']:5}  {capture['label']} {capture['score']:.2f}{given}"


if __name__ == "__main__":
    sys.exit(main())
