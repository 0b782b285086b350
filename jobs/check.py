"""Check whether images, rows of a table or texts look like the reference of a bundle; if not, name what changed.

It takes what the model takes: a folder of images; a CSV or parquet file; a text file or a folder of .txt files. Labels
are not needed; where rows have them, the error is measured too. Causes found in images are checked by undoing them:
they are proved if little of the drift is left. The verdict is printed; --out also writes verdict.json and
drift.html, a page that shows what changed most. The command changes nothing else and can be run again at any time,
which replaces both files.

Exit status: 0 no drift; 2 wrong options or files; 3 drift; 4 the data do not allow a verdict.
"""

from jobs import prepare_process

if __name__ == "__main__":
    prepare_process()

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dashboards.page import write_page
from equipoise.bundle.bundle import load_bundle
from equipoise.bundle.kinds.base_bundle import Bundle
from equipoise.bundle.manifest import Kind
from equipoise.command_line import command
from equipoise.runs.folder import require_writable
from equipoise.storage.atomic import write_json
from equipoise.storage.user_paths import require_local_paths
from jobs.checking.boxed_images import check_boxed_images
from jobs.checking.checked_data import CheckedData
from jobs.checking.image_folder import check_image_folder
from jobs.checking.table_file import check_table
from jobs.checking.text_files import check_texts
from jobs.checking.verdict_table import format_verdict_table
from jobs.cli.option_parser import parse_options
from jobs.cli.output_folder import require_no_other_results
from jobs.cli.paths import LocalPath, OptionalLocalPath, validate_locations

EXIT_STATUS_BY_STATE = {"ok": 0, "drift": 3, "unknown": 4}
CHECKS: dict[Kind, Callable[[Any, Path], CheckedData]] = {
    "image": check_image_folder,
    "table": check_table,
    "text": check_texts,
    "boxes": check_boxed_images,
}


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    __doc__ = __doc__

    bundle: str
    """folder or URL of a published model"""
    data: LocalPath
    """folder of images at any depth, CSV or parquet file, text file or folder of .txt files, by what the model takes"""
    json: bool = False
    """print one JSON object instead of a table"""
    out: OptionalLocalPath = None
    """folder for verdict.json and drift.html, a page with what changed most; none if not given"""


@command()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status, which tells the verdict."""
    options = parse_options(CheckOptions, arguments)
    validate_locations(options.bundle)
    require_local_paths({"--data": options.data, "--out": options.out})
    if options.out:
        require_no_other_results(options.out, "check")
    model = load_bundle(options.bundle)
    if options.out:
        require_writable(options.out)
    checked = CHECKS[model.kind](model, options.data)
    if options.out:
        write_drift_report(options, options.out, model, checked)
    verdict = checked.verdict
    print(json.dumps(verdict.to_json(), allow_nan=False) if options.json else format_verdict_table(verdict))
    return EXIT_STATUS_BY_STATE[verdict.state]


def write_drift_report(options: CheckOptions, out: Path, model: Bundle, checked: CheckedData) -> None:
    """Write verdict.json and its page drift.html to the output folder."""
    report = msgspec.structs.replace(checked.verdict, bundle=options.bundle, folder=str(options.data), model=model.name)
    write_json(out / "verdict.json", report.to_json())
    print(f"page: {write_page(checked.build_page(report), out / 'drift.html')}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
