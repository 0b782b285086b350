"""An index over a folder of runs, and the page of each that has none yet: python -m dashboards.build runs/

Runs leave their own pages; this writes those that are missing or older than what they show.
"""

import argparse
import sys
from contextlib import suppress
from pathlib import Path

from dashboards import experiments
from dashboards import reports as pages
from dashboards.experiments import FOREIGN, Experiment
from dashboards.page import plain, written
from dashboards.panels import experiment_index as index

MOST_PAGES = 200  # written at once: of two thousand runs the index is enough, and a page weighs 2 MB


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 the index was written, 2 it cannot be."""
    asked = argparse.ArgumentParser(prog="python -m dashboards.build", description=__doc__)
    asked.add_argument("folder", type=Path, help="folder of runs, such as runs/")
    asked.add_argument("--out", type=Path, help="file to write; FOLDER/index.html if not given")
    given = asked.parse_args(arguments)
    out = given.out or given.folder / "index.html"
    try:
        if not given.folder.is_dir():
            raise ValueError(f"{given.folder} is no folder: give one that holds runs")
        if not out.name or (out.exists() and not out.is_file()):
            raise ValueError(f"--out {out} is no file: give a name such as index.html")
        print(f"written to {build(given.folder, out)}")  # noqa: T201
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return 2
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


def build(root: Path, out: Path) -> Path:
    """The index and the pages that it leads to."""
    found, room = [], MOST_PAGES
    for one in experiments.found(root):
        new = room > 0 and stale(one)
        room -= new
        found.append(drawn(one, new))
    return written(index.page(found, root, index.beside(out)), out)


def drawn(one: Experiment, new: bool) -> Experiment:
    """The experiment with its page, if it can be shown; otherwise why not."""
    try:
        if new:
            with suppress(OSError):  # where nothing can be written the page of before is led to, if there is one
                pages.left(one)
        plain([index.side(one), index.cells(one)])
    except FOREIGN as error:
        return experiments.foreign(one, error)
    return one


def stale(one: Experiment) -> bool:
    """Whether its page is missing, or older than what it shows."""
    page = one.page
    return not one.why and (page is None or page.stat().st_mtime < one.changed)


if __name__ == "__main__":
    sys.exit(main())
