"""Notes and tags: who wrote what, and what is refused."""

import threading

import pytest

from equipoise.errors import EquipoiseError
from services.site.experiments.experiment_notes import (
    add_note,
    add_tag,
    find_tags,
    list_notes,
    list_tags,
    remove_note,
    remove_tag,
)
from services.site.experiments.index_database import INDEX_FILE, open_index, remove_database


def test_notes_and_tags_outlive_the_index(tmp_path):
    connection = open_index(tmp_path)
    add_note(connection, "a/b", " It converges.\r\nSlowly. ", "Ada")
    add_tag(connection, "a/b", "baseline", "Ada")
    add_tag(connection, "a/b", "baseline", "Bob")  # set already
    connection.close()
    remove_database(tmp_path / INDEX_FILE)
    connection = open_index(tmp_path)
    (note,) = list_notes(connection, "a/b")
    assert (note.text, note.author) == ("It converges.\nSlowly.", "Ada") and note.written > 1e9
    assert [(tag.tag, tag.author) for tag in list_tags(connection, "a/b")] == [("baseline", "Ada")]
    assert find_tags(connection, ["a/b", "c"]) == {"a/b": ["baseline"]}
    remove_note(connection, "a/b", note.id)
    remove_tag(connection, "a/b", "baseline")
    assert not list_notes(connection, "a/b") and not list_tags(connection, "a/b")


@pytest.mark.parametrize("text", ["", "  \n", "x" * 5001, "null \0 byte", "\ud800"])
def test_notes_that_are_no_text_are_refused(tmp_path, text):
    with pytest.raises(EquipoiseError, match="cannot write the note"):
        add_note(open_index(tmp_path), "a", text, "Ada")


@pytest.mark.parametrize("tag", ["", "two words", "-x", "<b>", "x" * 41, "a\0"])
def test_tags_have_a_plain_form(tmp_path, tag):
    with pytest.raises(EquipoiseError, match="cannot set the tag"):
        add_tag(open_index(tmp_path), "a", tag, "Ada")


def test_notes_of_another_experiment_are_not_removed(tmp_path):
    connection = open_index(tmp_path)
    add_note(connection, "a", "text", "Ada")
    with pytest.raises(EquipoiseError, match="cannot remove note"):
        remove_note(connection, "b", list_notes(connection, "a")[0].id)


def test_two_people_may_write_at_once(tmp_path):
    open_index(tmp_path).close()

    def write(author):
        connection = open_index(tmp_path)
        for number in range(20):
            add_note(connection, "a", f"note {number}", author)
        connection.close()

    threads = [threading.Thread(target=write, args=(author,)) for author in ("Ada", "Bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list_notes(open_index(tmp_path), "a")) == 40
