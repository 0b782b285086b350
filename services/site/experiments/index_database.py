"""Database of the index: folders that were looked at, and a row for each experiment and record in them.

What is in it can be read from the results again: a database of another version, or a damaged one, is replaced.
"""

import sqlite3
from contextlib import suppress
from pathlib import Path

from equipoise.errors import EquipoiseError
from services.site.experiments.index_columns import INDEX_COLUMNS

INDEX_FILE, NOTES_FILE = "index.sqlite", "notes.sqlite"
INDEX_VERSION = 2  # changes with the tables
READER_CACHE_KIBIBYTES = 2_048  # of a connection: each of some dozens of threads has one
WRITER_CACHE_KIBIBYTES = 16_384
BUSY_SECONDS = 30.0  # until a writer of another process gives way
PENDING = 0  # time of change of a folder that is still to be looked at

COLUMN_TYPES = ", ".join(f"{column.name} {column.sql_type}" for column in INDEX_COLUMNS if column.name != "path")
SCHEMA = f"""
CREATE TABLE folders (path BLOB PRIMARY KEY, mtime_ns INTEGER, has_folders INTEGER) WITHOUT ROWID;
CREATE INDEX folders_by_time ON folders (mtime_ns);
CREATE INDEX parents ON folders (mtime_ns) WHERE has_folders;
CREATE TABLE entries (
    path TEXT PRIMARY KEY, folder BLOB, file_mtime_ns INTEGER, file_size INTEGER, problem TEXT, {COLUMN_TYPES}
);
CREATE INDEX entries_by_folder ON entries (folder);
CREATE INDEX entries_by_time ON entries (modified, path);
CREATE INDEX entries_by_kind ON entries (kind);
CREATE INDEX results_by_time ON entries (modified) WHERE kind <> 'trial';
CREATE INDEX unreadable_entries ON entries (modified) WHERE status = 'unreadable';
PRAGMA user_version = {INDEX_VERSION};
"""
NOTES_SCHEMA = """
CREATE TABLE IF NOT EXISTS notes.notes (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL, text TEXT NOT NULL, author TEXT NOT NULL, written REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS notes.notes_by_path ON notes (path);
CREATE TABLE IF NOT EXISTS notes.tags (
    path TEXT, tag TEXT, author TEXT NOT NULL, written REAL NOT NULL, PRIMARY KEY (path, tag)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS notes.paths_by_tag ON tags (tag, path);
"""


def create_index(state_folder: Path) -> None:
    """Create the index and the notes of a site where they are not there; replace an index that is unusable.

    Only before anybody has opened it: whoever has a replaced one open goes on with a file that nobody else sees.
    """
    state_folder.mkdir(parents=True, exist_ok=True)
    file = state_folder / INDEX_FILE
    try:
        connect_index(file).close()
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):  # such as a locked file: the index itself may be good
            raise
        remove_database(file)
        connect_index(file).close()
    try:
        open_index(state_folder).close()
    except sqlite3.DatabaseError as error:
        problem = f"cannot read the notes in {state_folder / NOTES_FILE}: {error}"
        raise EquipoiseError("file-damaged", problem, "restore it, or move it away") from None


def open_index(state_folder: Path) -> sqlite3.Connection:
    """Open the index of a site with its notes."""
    connection = connect_index(state_folder / INDEX_FILE)
    connection.execute("ATTACH DATABASE ? AS notes", (str(state_folder / NOTES_FILE),))
    connection.execute("PRAGMA notes.journal_mode = WAL")
    connection.executescript(NOTES_SCHEMA)
    return connection


def connect_index(file: Path, cache_kibibytes: int = READER_CACHE_KIBIBYTES) -> sqlite3.Connection:
    """Open the database of the index, and create its tables if they are not there."""
    connection = sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")  # pages are read while rows are written
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA cache_size = -{cache_kibibytes}")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
        elif version != INDEX_VERSION:
            raise sqlite3.DatabaseError(f"the index has version {version}")
        connection.execute("SELECT count(*) FROM (SELECT 1 FROM entries LIMIT 1)").fetchone()
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def remove_database(file: Path) -> None:
    """Remove a database with the files beside it."""
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            file.with_name(file.name + suffix).unlink()
