"""Write an index page of a folder of runs, and the pages of runs that have none.

Runs and sweeps write their own pages; this command adds those that are missing or older than their data. The same
command brings the index up to date again.

Exit status: 0 the index was written; 2 wrong options or files.
"""

from equipoise.startup_signals import exit_on_startup_signals

if __name__ == "__main__":
    exit_on_startup_signals()

import sys
from contextlib import suppress
from pathlib import Path

from dashboards.experiments import READ_ERRORS, Experiment, find_experiments, mark_unreadable
from dashboards.page import INDEX_LINK_TEXT, to_plain_json, write_page
from dashboards.panels.experiment_index import build_index_page, comparison_entry, page_link_finder, row_cells
from dashboards.reports import write_pages
from equipoise.command_line import CommandParser, command
from equipoise.errors import EquipoiseError
from equipoise.storage.atomic import find_output_file
from equipoise.storage.user_paths import PathText, parse_path_or_url, require_local_paths

PAGE_HEAD_CHARACTERS = 20_000  # of a page, up to its links
MAX_WRITTEN_PAGES = 200  # per call: a page takes 2 MB, and for two thousand runs the index is enough


@command()
def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    options = build_parser().parse_args(arguments)
    require_local_paths({"FOLDER": options.folder, "--out": options.out})
    folder = parse_path_or_url(options.folder)
    out = folder / "index.html" if options.out is None else parse_path_or_url(options.out)
    if not folder.is_dir():
        raise EquipoiseError("path-kind", f"cannot read {folder}: it is not a folder", "give one that holds runs")
    if not out.name:
        raise EquipoiseError(
            "path-kind", f"cannot write --out {out}: it is a folder", "give a file name such as index.html"
        )
    find_output_file(out)  # refuses what is not a file
    print(f"written to {build_index(folder, out)}")  # noqa: T201
    return 0


def build_parser() -> CommandParser:
    """Build the parser of the command's options."""
    parser = CommandParser(description=__doc__)
    parser.add_argument(
        "folder", type=PathText, metavar="FOLDER", help="folder that holds runs and sweeps, at any depth"
    )
    parser.add_argument("--out", type=PathText, help="file to write the index to; FOLDER/index.html if not given")
    return parser


def build_index(root: Path, out: Path, max_written_pages: int = MAX_WRITTEN_PAGES) -> Path:
    """Write the index and the missing pages that it links to, and return the path of the index."""
    experiments, remaining = [], max_written_pages
    for experiment in find_experiments(root):
        write = remaining > 0 and is_page_stale(experiment)
        remaining -= write
        experiments.append(refresh_page(experiment, write, out))
    return write_page(build_index_page(experiments, root, page_link_finder(out)), out)


def refresh_page(experiment: Experiment, write: bool, index: Path | None = None) -> Experiment:
    """Write an experiment's pages if `write`; return the experiment, marked as unreadable if it cannot be shown."""
    try:
        if write:
            with suppress(OSError):  # in a read-only folder the index links to the old page, if there is one
                write_pages(experiment, index)
        to_plain_json([comparison_entry(experiment), row_cells(experiment)])
    except READ_ERRORS as error:
        return mark_unreadable(experiment, error)
    return experiment


def is_page_stale(experiment: Experiment) -> bool:
    """Return whether an experiment's page is missing, older than the data it shows, or without a link to an index."""
    page = experiment.page_path
    if experiment.problem or page is None:
        return not experiment.problem
    if not page.is_file():  # something else has the name of a page
        return False
    with page.open(encoding="utf-8", errors="replace") as file:
        return page.stat().st_mtime < experiment.modified or INDEX_LINK_TEXT not in file.read(PAGE_HEAD_CHARACTERS)


if __name__ == "__main__":
    sys.exit(main())
