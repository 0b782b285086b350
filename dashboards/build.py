"""An index over a folder of runs, and the page of each that has none yet: python -m dashboards.build runs/

Runs leave their own pages; this writes those that are missing or older than what they show.
"""

import argparse
import sys
from contextlib import suppress
from pathlib import Path

from dashboards.experiments import READ_ERRORS, Experiment, find_experiments, mark_unreadable
from dashboards.page import to_plain_json, write_page
from dashboards.panels.experiment_index import build_index_page, comparison_entry, page_link_finder, row_cells
from dashboards.reports import write_pages

MAX_WRITTEN_PAGES = 200  # written at once: of two thousand runs the index is enough, and a page weighs 2 MB


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
        print(f"written to {build_index(given.folder, out)}")  # noqa: T201
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return 2
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


def build_index(root: Path, out: Path) -> Path:
    """The index and the pages that it leads to."""
    found, room = [], MAX_WRITTEN_PAGES
    for one in find_experiments(root):
        new = room > 0 and is_page_stale(one)
        room -= new
        found.append(refresh_page(one, new))
    return write_page(build_index_page(found, root, page_link_finder(out)), out)


def refresh_page(experiment: Experiment, write: bool) -> Experiment:
    """The experiment with its page, if it can be shown; otherwise why not."""
    try:
        if write:
            with suppress(OSError):  # where nothing can be written the page of before is led to, if there is one
                write_pages(experiment)
        to_plain_json([comparison_entry(experiment), row_cells(experiment)])
    except READ_ERRORS as error:
        return mark_unreadable(experiment, error)
    return experiment


def is_page_stale(experiment: Experiment) -> bool:
    """Whether its page is missing, or older than what it shows."""
    page = experiment.page_path
    return not experiment.problem and (page is None or page.stat().st_mtime < experiment.modified)


if __name__ == "__main__":
    sys.exit(main())
