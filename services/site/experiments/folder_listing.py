"""What lies in one folder of the results: folders, records, and the files of another experiment."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dashboards.experiments import READ_ERRORS
from dashboards.page import escape_surrogates
from equipoise.runs.listing import NON_RECORD_FOLDERS
from services.site.experiments.index_columns import Value
from services.site.experiments.index_rows import (
    EXPERIMENT_FILES,
    RECORD_FILE,
    TRIALS_FOLDER,
    UNREADABLE,
    FileStamp,
    IndexRow,
    join_stamps,
    read_experiment_row,
    read_record_row,
    stamp_entry,
)

SWEEP_TABLES = ("system.csv", "statistical.csv")


@dataclass(kw_only=True)
class FolderListing:
    """Entries of one folder that the index knows of."""

    folder: Path
    name: str
    """path below the results as the index has it, with surrogates escaped; `.` for these themselves"""
    folder_names: list[str] = field(default_factory=list)
    """names of the folders in it that may hold experiments"""
    records: list["os.DirEntry[str]"] = field(default_factory=list)
    """files of records: that of a run, or those of trials"""
    other_files: list["os.DirEntry[str]"] = field(default_factory=list)
    """files of other experiments"""
    names: set[str] = field(default_factory=set)
    """names by which an experiment is told"""

    def iterate_rows(self, known: Mapping[str, FileStamp], seen: set[str]) -> Iterator[IndexRow]:
        """Yield the rows that are new or changed; `seen` gets the names of all."""
        is_run = False
        for entry in self.records:
            is_record = entry.name == RECORD_FILE
            is_run = is_run or is_record
            trial = escape_surrogates(entry.name.removesuffix(".json"))
            name = self.name if is_record else f"{self.name}/{trial}"
            seen.add(name)
            if known.get(name) != stamp_entry(entry):
                yield read_record_row(entry, name, "run" if is_record else "trial")
        if is_run or not self.names.intersection(EXPERIMENT_FILES):
            return
        stamp = join_stamps([stamp_entry(entry) for entry in self.other_files])
        if known.get(self.name) == stamp:
            seen.add(self.name)
        elif (row := self._read_experiment(stamp)) is not None:
            seen.add(self.name)
            yield row

    def _read_experiment(self, stamp: FileStamp) -> IndexRow | None:
        """Read an experiment other than a run; one whose contents cannot be shown keeps its name."""
        try:
            return read_experiment_row(self.folder, self.name, self.names, stamp)
        except (*READ_ERRORS, OSError) as error:
            problem = f"cannot be shown: it was written by another program or damaged ({type(error).__name__})"
            values: dict[str, Value] = {"kind": "?", "status": UNREADABLE, "modified": stamp.mtime_ns / 1e9}
            return IndexRow(path=self.name, stamp=stamp, values=values, problem=problem)


def list_folder(root: Path, path: str) -> FolderListing:
    """List a folder below the root; names that begin with a dot, and parts of runs and sweeps, are left out."""
    listing = FolderListing(folder=root / path, name=escape_surrogates(path) or ".")
    is_trials = Path(path).name == TRIALS_FOLDER
    with os.scandir(listing.folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                listing.names.add(entry.name)
                if entry.name not in NON_RECORD_FOLDERS:
                    listing.folder_names.append(entry.name)
            elif entry.name == RECORD_FILE or (is_trials and entry.name.endswith(".json")):
                listing.records.append(entry)
            elif not is_trials and entry.name in (*EXPERIMENT_FILES, *SWEEP_TABLES):
                listing.names.add(entry.name)
                listing.other_files.append(entry)
    return listing
