"""Notes and tags of experiments: who wrote what and when, in a database beside the index that outlives it."""

import re
import sqlite3
import time
from dataclasses import dataclass

from equipoise.errors import EquipoiseError

MAX_NOTE_LENGTH, MAX_NOTES = 5000, 1000  # characters; notes of one experiment
MAX_TAGS = 50  # of one experiment
TAG = re.compile(r"[^\W_][\w.-]{0,39}")


@dataclass(frozen=True, kw_only=True)
class ExperimentNote:
    """Note that somebody wrote on an experiment."""

    id: int
    text: str
    author: str
    written: float
    """time in seconds since 1970"""


@dataclass(frozen=True, kw_only=True)
class ExperimentTag:
    """Tag that somebody set on an experiment."""

    tag: str
    author: str
    written: float
    """time in seconds since 1970"""


def list_notes(connection: sqlite3.Connection, path: str) -> list[ExperimentNote]:
    """Return the notes of an experiment, the oldest first."""
    query = "SELECT id, text, author, written FROM notes.notes WHERE path = ? ORDER BY id"
    return [
        ExperimentNote(id=number, text=text, author=author, written=written)
        for number, text, author, written in connection.execute(query, (path,))
    ]


def list_tags(connection: sqlite3.Connection, path: str) -> list[ExperimentTag]:
    """Return the tags of an experiment in the order of their names."""
    query = "SELECT tag, author, written FROM notes.tags WHERE path = ? ORDER BY tag"
    return [
        ExperimentTag(tag=tag, author=author, written=written)
        for tag, author, written in connection.execute(query, (path,))
    ]


def find_tags(connection: sqlite3.Connection, paths: list[str]) -> dict[str, list[str]]:
    """Return the tags of several experiments by their paths."""
    marks = ", ".join("?" * len(paths))
    query = f"SELECT path, tag FROM notes.tags WHERE path IN ({marks}) ORDER BY tag"  # noqa: S608 - question marks
    tags: dict[str, list[str]] = {}
    for path, tag in connection.execute(query, paths):
        tags.setdefault(path, []).append(tag)
    return tags


def add_note(connection: sqlite3.Connection, path: str, text: str, author: str) -> None:
    """Add a note to an experiment."""
    text = text.strip().replace("\r\n", "\n")
    if not text or len(text) > MAX_NOTE_LENGTH:
        problem = "it is empty" if not text else f"it has more than {MAX_NOTE_LENGTH:,} characters"
        raise EquipoiseError("option-format", f"cannot write the note: {problem}", "write a sentence")
    (count,) = connection.execute("SELECT count(*) FROM notes.notes WHERE path = ?", (path,)).fetchone()
    if count >= MAX_NOTES:
        raise EquipoiseError("option-range", f"cannot write the note: {path} has {count:,} of them", "remove some")
    query = "INSERT INTO notes.notes (path, text, author, written) VALUES (?, ?, ?, ?)"
    connection.execute(query, (path, require_plain_text("the note", text), author, time.time()))


def remove_note(connection: sqlite3.Connection, path: str, number: int) -> None:
    """Remove a note of an experiment."""
    cursor = connection.execute("DELETE FROM notes.notes WHERE path = ? AND id = ?", (path, number))
    if not cursor.rowcount:
        raise EquipoiseError("path-missing", f"cannot remove note {number}: {path} has none of this number")


def add_tag(connection: sqlite3.Connection, path: str, tag: str, author: str) -> None:
    """Set a tag of an experiment; one that is set stays as it is."""
    tag = tag.strip()
    if not TAG.fullmatch(tag):
        raise EquipoiseError(
            "option-format",
            f"cannot set the tag {tag[:60]!r}: a tag has up to 40 letters, digits, dots, hyphens and underscores",
            "begin it with a letter or digit",
        )
    if len(list_tags(connection, path)) >= MAX_TAGS:
        raise EquipoiseError("option-range", f"cannot set the tag: {path} has {MAX_TAGS} of them", "remove one")
    query = "INSERT OR IGNORE INTO notes.tags VALUES (?, ?, ?, ?)"
    connection.execute(query, (path, require_plain_text("the tag", tag), author, time.time()))


def remove_tag(connection: sqlite3.Connection, path: str, tag: str) -> None:
    """Remove a tag of an experiment, if it is set."""
    connection.execute("DELETE FROM notes.tags WHERE path = ? AND tag = ?", (path, tag))


def require_plain_text(name: str, text: str) -> str:
    """Return a text that a database can hold; refuse null bytes and halves of characters."""
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise EquipoiseError("option-format", f"cannot write {name}: it holds what is no text", "leave it out")
    return text
