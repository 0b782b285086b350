"""List the requests kept for labelling, label them, and export the labelled ones as a folder to train on.

Without --labels and --out it only lists the captures. --labels writes labels into the captures, --out writes the
labelled images as OUT/CLASS/ID.png. If a row of --labels is wrong, no label is given; the exported folder appears only
when it is complete. An interrupted command can be run again.

Exit status: 0 done; 2 wrong options or files.
"""

from jobs import prepare_process

if __name__ == "__main__":
    prepare_process()

import json
import os
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import msgspec

from equipoise.bundle.folder import verify_bundle
from equipoise.captures.capture import CAPTURE_POOLS, CaptureMetadata
from equipoise.captures.store import CaptureStore
from equipoise.command_line import command
from equipoise.errors import EquipoiseError
from equipoise.formatting import make_printable
from equipoise.runs.folder import require_writable
from equipoise.storage.atomic import download_folder, require_regular_file
from equipoise.storage.path_errors import report_path_errors
from equipoise.storage.user_paths import require_local_paths
from jobs.cli.option_parser import parse_options
from jobs.cli.paths import OptionalLocalPath, require_capture_folder, validate_locations

MAX_LISTED_CAPTURES = 10  # captures printed one by one


@dataclass(frozen=True, kw_only=True)
class CapturesOptions:
    __doc__ = __doc__

    capture_dir: str
    """folder or URL (s3://...) of the captures"""
    labels: OptionalLocalPath = None
    """CSV with the columns id and label; if one row is wrong, no label is given"""
    bundle: str | None = None
    """bundle whose classes the labels must be among; all classes that captures have scores for if not given"""
    out: OptionalLocalPath = None
    """folder for the labelled captures, OUT/CLASS/ID.png, to train on with --workload folder; must not exist"""
    json: bool = False
    """print JSON instead of text"""


@command()
def main() -> int:
    """Run the command and return its exit status."""
    options = parse_options(CapturesOptions)
    result = label_and_export_captures(options)
    print(json.dumps(msgspec.to_builtins(result), indent=1) if options.json else str(result))
    return 0


class LabelCounts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many captures a command has labelled and exported; what it was not asked for is left out."""

    labelled: int | None = None
    exported: dict[str, int] | None = None
    """images by label"""
    out: str | None = None
    """folder of the exported images"""
    skipped: int
    """files that are not complete captures"""

    def __str__(self) -> str:
        lines = [] if self.labelled is None else [f"{self.labelled} labelled"]
        if self.exported is not None:
            counts = ", ".join(f"{count} {name}" for name, count in self.exported.items())
            lines.append(f"{self.out}: {sum(self.exported.values())} images ({counts})")
        return format_lines([*lines, *describe_skipped(self.skipped)])


class PoolCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of captures of one pool."""

    labelled: int
    unlabelled: int


class CapturesSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Captures of a folder by pool, and those that are most useful to label."""

    captures: dict[str, PoolCounts]
    skipped: int
    first: list[CaptureMetadata]

    def __str__(self) -> str:
        lines = [
            f"{pool}: {counts.unlabelled} to label, {counts.labelled} labelled"
            for pool, counts in self.captures.items()
        ]
        return format_lines([*lines, *map(format_capture, self.first), *describe_skipped(self.skipped)])


def label_and_export_captures(options: CapturesOptions) -> LabelCounts | CapturesSummary:
    """Label and export captures as requested and return the counts, or a summary if neither was requested."""
    validate_locations(options.capture_dir, options.bundle)
    require_local_paths({"--labels": options.labels, "--out": options.out})
    require_capture_folder(options.capture_dir)
    if options.out:
        require_new_folder(options.out)  # before labels are given
    captures = CaptureStore(options.capture_dir)
    labelled = exported = None
    if options.labels:
        labels = read_labels_csv(options.labels)
        classes = allowed_labels(captures, options.bundle)
        try:
            labelled = captures.label_from_csv(labels, classes)
        except EquipoiseError as error:
            raise error.within(f"cannot use --labels {options.labels}") from error
    if options.out:
        exported = captures.export_labelled(
            options.out, load_bundle_classes(options.bundle) if options.bundle else None
        )
    if labelled is None and exported is None:
        return summarize_captures(captures)
    out = str(options.out) if options.out else None
    return LabelCounts(labelled=labelled, exported=exported, out=out, skipped=captures.skipped_files)


def require_new_folder(out: Path) -> None:
    """Refuse a folder that exists or cannot be created."""
    if os.path.lexists(out):
        raise EquipoiseError("path-exists", f"cannot write {out}: it exists already", "give another name, or remove it")
    require_writable(out)


def read_labels_csv(path: Path) -> str:
    """Read the text of a CSV of labels."""
    require_regular_file(path)
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


def summarize_captures(captures: CaptureStore) -> CapturesSummary:
    """Count the captures by pool and label, and list the ones most useful to label."""
    listed = captures.list_captures(limit=None)
    counts = Counter((capture.pool, capture.label_given is not None) for capture in listed)
    pools = {pool: PoolCounts(labelled=counts[pool, True], unlabelled=counts[pool, False]) for pool in CAPTURE_POOLS}
    return CapturesSummary(captures=pools, skipped=captures.skipped_files, first=listed[:MAX_LISTED_CAPTURES])


def format_lines(lines: list[str]) -> str:
    """Join lines of text, in which labels and other names may hold any character."""
    return "\n".join(map(make_printable, lines))


def describe_skipped(count: int) -> list[str]:
    """Return a line on files that are not complete captures, if there are any."""
    return [f"files skipped because they are not complete captures: {count}"] if count else []


def format_capture(capture: CaptureMetadata) -> str:
    """Format a capture as one line: id, pool, predicted label with its score, and label given."""
    label_given = f", labelled {capture.label_given}" if capture.label_given is not None else ""
    return f"  {capture.id}  {capture.pool:5}  {capture.label} {capture.score:.2f}{label_given}"


if __name__ == "__main__":
    sys.exit(main())
