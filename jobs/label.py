"""Label pictures in the browser: boxes or classes, by several people at once, with a model's first guesses.

Serves a page on which people draw boxes or choose classes for the pictures of a folder, until Ctrl-C. Each picture's
labels are one JSON file, written whole or not at all; the same command continues where it was stopped. Labels that were
given elsewhere can be imported, and all labelled pictures exported as a data set in another format.

Exit status: 0 exported, with --export; 1 the disk is full; 2 wrong options or files; 143 stopped.
"""

from jobs import prepare_process

if __name__ == "__main__":
    prepare_process()

import importlib
import sys
from dataclasses import dataclass
from typing import Any, Literal

from equipoise.command_line import command
from equipoise.errors import EquipoiseError
from equipoise.formatting import make_printable, pluralize
from equipoise.labels.exchange import ExchangeSummary, export_labels, import_labels
from equipoise.labels.store import LabelStore
from equipoise.runs.folder import require_writable
from equipoise.storage.user_paths import require_local_paths
from jobs.cli.option_parser import parse_options
from jobs.cli.paths import LocalPath, OptionalLocalPath, validate_locations
from jobs.publishing.service_address import read_api_key, require_service_url

SERVER_MODULE = "services.labelling.server"  # started by its name: commands and services are independent of each other


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    __doc__ = __doc__

    images: LocalPath
    """folder of the pictures, at any depth, or the captures of a service, whose answers are the guesses; pictures that
    are added on the page are written to it"""
    out: LocalPath
    """folder of the labels, one JSON file per picture"""
    kind: Literal["boxes", "class"] | None = None
    """boxes, or class for one class per picture; that of the labels in --out if not given, boxes for a new folder"""
    classes: tuple[str, ...] = ()
    """classes in the order of their number keys, behind those in --out; commas may separate them"""
    guesses: OptionalLocalPath = None
    """first guesses from a file: COCO's JSON with scores, or replies of /predict by the name of the picture"""
    bundle: str | None = None
    """folder or URL of a published model that gives a first guess"""
    service: str | None = None
    """URL of a prediction service, whose /predict is asked for a first guess"""
    key: OptionalLocalPath = None
    """file with the API key of --service"""
    import_labels: OptionalLocalPath = None
    """folder of pictures with labels in COCO's, YOLO's or Pascal VOC's format, or with a folder per class: labels to
    begin with, for pictures in --images that have none"""
    export: Literal["coco", "yolo", "voc", "folder"] | None = None
    """format to write all labels in: boxes as coco, yolo or voc, classes as folder (a folder per class)"""
    export_to: OptionalLocalPath = None
    """new folder for --export, with the pictures, to train on"""
    host: str = "127.0.0.1"
    """address to listen on; 0.0.0.0 for all of this machine, which needs --api-keys-file"""
    port: int = 8090
    """TCP port to listen on"""
    api_keys_file: OptionalLocalPath = None
    """file with one API key per line, readable by its owner only: the password of the page"""
    certfile: OptionalLocalPath = None
    """file with the TLS certificate chain; a phone lends its camera to pages with TLS only"""
    keyfile: OptionalLocalPath = None
    """file with the private key of --certfile"""

    def validate(self) -> None:
        """Refuse options out of range, and folders that cannot be used."""
        paths = {"--images": self.images, "--out": self.out, "--guesses": self.guesses, "--key": self.key}
        paths |= {"--api-keys-file": self.api_keys_file, "--certfile": self.certfile, "--keyfile": self.keyfile}
        paths |= {"--import-labels": self.import_labels, "--export-to": self.export_to}
        require_local_paths(dict(paths))
        if (self.export is None) != (self.export_to is None):
            raise EquipoiseError(
                "option-missing", "an export needs --export FORMAT and --export-to FOLDER", "give both"
            )
        if self.bundle and self.service:
            raise EquipoiseError("option-conflict", "only one of --bundle and --service gives guesses", "leave out one")
        validate_locations(self.bundle)
        if not 1 <= self.port <= 65535:
            raise EquipoiseError("option-range", f"--port must be from 1 to 65535, got {self.port}")
        if not self.images.is_dir():
            raise EquipoiseError(
                "path-kind",
                f"cannot label --images {self.images}: it is not a folder",
                "give the folder of the pictures",
            )
        if self.export_to is not None and self.export_to.resolve().is_relative_to(self.images.resolve()):
            raise EquipoiseError(
                "option-conflict",
                f"cannot export to --export-to {self.export_to}: it lies in --images {self.images}, whose pictures"
                " would then be there twice, once without labels",
                "give a folder elsewhere",
            )
        if self.service is not None:
            require_service_url(self.service)
        require_writable(self.out)


@command()
def main() -> int:
    """Run the command and return its exit status."""
    options = parse_options(LabelOptions)
    options.validate()
    store, kind = LabelStore(options.out), choose_kind(options)
    if options.import_labels:
        print_summary("imported", import_labels(store, options.images, kind, options.import_labels))
    if options.export and options.export_to:
        print_summary("exported", export_labels(store, options.images, options.export, options.export_to))
        return 0
    server = importlib.import_module(SERVER_MODULE)
    server.serve_until_stopped(build_settings(options, kind))
    return 0


def choose_kind(options: LabelOptions) -> str:
    """Return the kind of labels: the one given, or that of the labels in --out, or boxes."""
    return options.kind or LabelStore(options.out).read_classes()[0] or "boxes"


def print_summary(verb: str, summary: ExchangeSummary) -> None:
    """Print what was exported or imported, and each kind of what was left out."""
    counts = ", ".join(f"{count:,} {name}" for name, count in summary.by_class.items())
    lines = [f"{verb} the labels of {pluralize(summary.pictures, 'picture')} ({counts or 'no boxes'})"]
    lines += [f"left out: {line}" for line in summary.problems.describe()]
    print("\n".join(map(make_printable, lines)), flush=True)


def build_settings(options: LabelOptions, kind: str) -> dict[str, Any]:
    """Return the settings of the server."""
    paths = {name: getattr(options, name) for name in ("api_keys_file", "certfile", "keyfile")}
    return {
        "host": options.host,
        "port": options.port,
        **{name: str(path) if path else None for name, path in paths.items()},
        "images": options.images,
        "labels": options.out,
        "kind": kind,
        "classes": split_names(options.classes),
        "guesses": options.guesses,
        "service": options.service,
        "bundle": options.bundle,
        "service_key": read_api_key(options.key) if options.key else None,
    }


def split_names(texts: tuple[str, ...]) -> list[str]:
    """Return the names in texts that may each hold several, separated by commas."""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


if __name__ == "__main__":
    sys.exit(main())
