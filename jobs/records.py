"""List what was measured: a row for each record below a folder, of runs and of a sweep's trials.

On the screen, or as a CSV. Files that are no whole record are named, and cost no other its row.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from equipoise.formatting import pluralize
from equipoise.runs import listing
from equipoise.runs.listing import Listing
from equipoise.storage import atomic as store

SHOWN = 100  # rows on the screen; a table has them all
NAMED = 10  # damaged files


@dataclass(frozen=True, kw_only=True)
class Asked:
    __doc__ = __doc__

    folder: Annotated[Path, tyro.conf.Positional]
    """of runs and sweeps, however deep"""
    out: Path | None = None
    """CSV to write, instead of showing rows"""


def main() -> int:
    """Exit status: 0 listed, 2 asked for what cannot be."""
    asked = tyro.cli(Asked)
    try:
        listed(asked)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def listed(asked: Asked) -> None:
    """Rows where they were asked for, and what is damaged in a sentence."""
    if not asked.folder.is_dir():
        raise ValueError(f"{asked.folder} is no folder: give one that holds runs or sweeps")
    if asked.out and asked.out.is_dir():
        raise ValueError(f"--out {asked.out} is a folder: give a file, such as records.csv")
    found = listing.listed(asked.folder)
    if asked.out:
        written(found, asked.out)
    else:
        shown(found)
    if found.damaged:
        print(damaged(found.damaged), file=sys.stderr)


def written(found: Listing, out: Path) -> None:
    """A CSV that is whole or not there."""
    try:
        with store.whole(out) as temporary:
            found.rows.to_csv(temporary, index=False)
    except OSError as error:
        raise ValueError(f"--out {out} cannot be written: {error.strerror}") from error
    print(f"{pluralize(len(found.rows), 'record')} in {out}")


def shown(found: Listing) -> None:
    """The first rows."""
    rows = found.rows.head(SHOWN)
    if len(rows):
        print(rows.to_string(index=False, na_rep=""))
    more = len(found.rows) - len(rows)
    print(pluralize(len(found.rows), "record") + (f", {more:,} of them not shown: --out has them all" if more else ""))


def damaged(files: dict[str, str]) -> str:
    """What was passed over, and the first of it by name."""
    names = [f"{path if path.isprintable() else repr(path)} ({why})" for path, why in sorted(files.items())]
    more = f", and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    named = f"{pluralize(len(names), 'file')}: {', '.join(names[:NAMED])}{more}"
    return f"passed over, for they are no whole records: {named}"


if __name__ == "__main__":
    sys.exit(main())
