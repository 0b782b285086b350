"""List the records of all runs and sweep trials below a folder, one row each, on the screen or as a CSV.

A record.json that is damaged or incomplete is named on stderr and skipped; all others keep their rows. Nothing but the
CSV of --out is written, which appears only when it is complete; the same command replaces it.

Exit status: 0 listed; 2 wrong options or files.
"""

from jobs import prepare_process

if __name__ == "__main__":
    prepare_process()

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from equipoise.command_line import command
from equipoise.errors import EquipoiseError
from equipoise.formatting import make_printable, pluralize
from equipoise.runs.listing import RecordListing, list_records
from equipoise.storage.atomic import atomic_write, find_output_file
from equipoise.storage.path_errors import report_path_errors
from equipoise.storage.user_paths import require_local_paths
from jobs.cli.option_parser import parse_options
from jobs.cli.paths import LocalPath, OptionalLocalPath

MAX_PRINTED_ROWS = 100  # rows on the screen; the CSV has all
MAX_LISTED_DAMAGED_FILES = 10  # damaged files


@dataclass(frozen=True, kw_only=True)
class RecordsOptions:
    __doc__ = __doc__

    folder: Annotated[LocalPath, tyro.conf.Positional]
    """folder of runs and sweeps, which may lie at any depth"""
    out: OptionalLocalPath = None
    """CSV file to write instead of printing the rows"""


@command()
def main() -> int:
    """Run the command and return its exit status."""
    options = parse_options(RecordsOptions)
    report_records(options)
    return 0


def report_records(options: RecordsOptions) -> None:
    """Print the records or write them to a CSV, and name damaged files on stderr."""
    require_local_paths({"FOLDER": options.folder, "--out": options.out})
    if not options.folder.is_dir():
        raise EquipoiseError(
            "path-kind", f"cannot list {options.folder}: it is not a folder", "give one that holds runs or sweeps"
        )
    if options.out:
        find_output_file(options.out)  # refuses what is not a file
    records = list_records(options.folder)
    if options.out:
        write_records_csv(records, options.out)
    else:
        print_record_rows(records)
    if records.damaged_files:
        print(describe_damaged_files(records.damaged_files), file=sys.stderr)


def write_records_csv(records: RecordListing, out: Path) -> None:
    """Write the records to a CSV, completely or not at all, and print their number."""
    with report_path_errors(f"cannot write --out {out}", "give another file"), atomic_write(out) as temporary:
        records.rows.to_csv(temporary, index=False)
    print(f"{pluralize(len(records.rows), 'record')} in {out}")


def print_record_rows(records: RecordListing, max_rows: int = MAX_PRINTED_ROWS) -> None:
    """Print the first records and the number of all."""
    rows = records.rows.head(max_rows)
    if len(rows):
        print(make_printable(rows.to_string(index=False, na_rep=""), keep="\n"))
    more = len(records.rows) - len(rows)
    print(
        pluralize(len(records.rows), "record")
        + (f", {more:,} of them not shown: write all to a CSV with --out" if more else "")
    )


def describe_damaged_files(reason_by_file: dict[str, str]) -> str:
    """Describe the skipped files in one line, with the reasons of the first MAX_LISTED_DAMAGED_FILES."""
    names = [make_printable(f"{path} ({reason})") for path, reason in sorted(reason_by_file.items())]
    more = f", and {len(names) - MAX_LISTED_DAMAGED_FILES:,} more" if len(names) > MAX_LISTED_DAMAGED_FILES else ""
    files = f"{pluralize(len(names), 'file')}: {', '.join(names[:MAX_LISTED_DAMAGED_FILES])}{more}"
    return f"skipped, because they are not complete records: {files}"


if __name__ == "__main__":
    sys.exit(main())
