"""List what was measured: a row for each record below a folder, of runs and of a sweep's trials.

On the screen, or as a CSV. Files that are no whole record are named, and cost no other its row.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from equipoise.formatting import pluralize
from equipoise.runs.listing import RecordListing, list_records
from equipoise.storage.atomic import atomic_write

MAX_PRINTED_ROWS = 100  # rows on the screen; a table has them all
MAX_LISTED_DAMAGED_FILES = 10  # damaged files


@dataclass(frozen=True, kw_only=True)
class RecordsOptions:
    __doc__ = __doc__

    folder: Annotated[Path, tyro.conf.Positional]
    """of runs and sweeps, however deep"""
    out: Path | None = None
    """CSV to write, instead of showing rows"""


def main() -> int:
    """Exit status: 0 listed, 2 asked for what cannot be."""
    asked = tyro.cli(RecordsOptions)
    try:
        report_records(asked)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def report_records(options: RecordsOptions) -> None:
    """Rows where they were asked for, and what is damaged in a sentence."""
    if not options.folder.is_dir():
        raise ValueError(f"{options.folder} is no folder: give one that holds runs or sweeps")
    if options.out and options.out.is_dir():
        raise ValueError(f"--out {options.out} is a folder: give a file, such as records.csv")
    found = list_records(options.folder)
    if options.out:
        write_records_csv(found, options.out)
    else:
        print_record_rows(found)
    if found.damaged_files:
        print(describe_damaged_files(found.damaged_files), file=sys.stderr)


def write_records_csv(records: RecordListing, out: Path) -> None:
    """A CSV that is whole or not there."""
    try:
        with atomic_write(out) as temporary:
            records.rows.to_csv(temporary, index=False)
    except OSError as error:
        raise ValueError(f"--out {out} cannot be written: {error.strerror}") from error
    print(f"{pluralize(len(records.rows), 'record')} in {out}")


def print_record_rows(records: RecordListing) -> None:
    """The first rows."""
    rows = records.rows.head(MAX_PRINTED_ROWS)
    if len(rows):
        print(rows.to_string(index=False, na_rep=""))
    more = len(records.rows) - len(rows)
    print(
        pluralize(len(records.rows), "record") + (f", {more:,} of them not shown: --out has them all" if more else "")
    )


def describe_damaged_files(reason_by_file: dict[str, str]) -> str:
    """What was passed over, and the first of it by name."""
    names = [f"{path if path.isprintable() else repr(path)} ({why})" for path, why in sorted(reason_by_file.items())]
    more = f", and {len(names) - MAX_LISTED_DAMAGED_FILES:,} more" if len(names) > MAX_LISTED_DAMAGED_FILES else ""
    named = f"{pluralize(len(names), 'file')}: {', '.join(names[:MAX_LISTED_DAMAGED_FILES])}{more}"
    return f"passed over, for they are no whole records: {named}"


if __name__ == "__main__":
    sys.exit(main())
