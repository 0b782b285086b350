"""A user's own text files become four splits, or one sentence says why they cannot."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.workloads.text.text_files import (
    SPLIT_SHARES,
    list_text_files,
    read_text_corpus,
    split_by_files,
    split_into_stretches,
)
from tests.support.errors import raises_code


def write_texts(folder, texts):
    folder.mkdir(exist_ok=True)
    for index, text in enumerate(texts):
        (folder / f"{index:02}.txt").write_text(text, encoding="utf-8")
    return folder


def test_four_equal_files_make_four_splits(tmp_path):
    texts = [letter * 1000 for letter in "abcd"]
    corpus = read_text_corpus(write_texts(tmp_path, texts))
    assert sorted(vars(corpus).values()) == texts


def test_many_files_are_dealt_whole_and_in_proportion(tmp_path):
    texts = [chr(ord("A") + index) * (500 + 37 * index) for index in range(26)]
    corpus = read_text_corpus(write_texts(tmp_path, texts))
    parts = vars(corpus)
    assert sorted("".join(parts.values())) == sorted("".join(texts))
    assert not any(set(first) & set(second) for first in parts.values() for second in parts.values() if first != second)
    for split, share in SPLIT_SHARES.items():
        assert len(parts[split]) == pytest.approx(share * len("".join(texts)), abs=1000)


def test_one_file_is_cut_into_contiguous_stretches(tmp_path):
    text = "".join(chr(0x4E00 + index) for index in range(1000))
    (tmp_path / "book.md").write_text(text, encoding="utf-8")
    corpus = read_text_corpus(tmp_path / "book.md")
    assert "".join(vars(corpus).values()) == text
    assert [len(part) for part in vars(corpus).values()] == [600, 150, 100, 150]


def test_every_split_has_a_stretch_of_each_of_two_files(tmp_path):
    corpus = read_text_corpus(write_texts(tmp_path, ["a" * 1000, "b" * 3000]))
    assert [(part.count("a"), part.count("b")) for part in vars(corpus).values()] == [
        (600, 1800),
        (150, 450),
        (100, 300),
        (150, 450),
    ]


def test_book_with_three_notes_is_cut_into_stretches():
    texts = ["a" * 100_000, "b" * 50, "c" * 50, "d" * 50]
    assert split_by_files(texts) is None
    assert len(split_into_stretches(texts).validation) == pytest.approx(15_000, rel=0.01)


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=12))
def test_files_are_dealt_completely_and_to_every_split_or_not_at_all(lengths):
    corpus = split_by_files([chr(0x100 + index) * length for index, length in enumerate(lengths)])
    if corpus is None:
        return
    assert len(lengths) >= 4 and all(vars(corpus).values())
    assert sum(map(len, vars(corpus).values())) == sum(lengths)
    assert sum(len(set(part)) for part in vars(corpus).values()) == len(lengths)


@given(st.lists(st.text(max_size=50), min_size=1, max_size=5))
def test_stretches_lose_no_character(texts):
    parts = vars(split_into_stretches(texts))
    assert sorted("".join(parts.values())) == sorted("".join(texts))


def test_equal_files_count_once(tmp_path):
    texts = [letter * 1000 for letter in "abcd"]
    once = read_text_corpus(write_texts(tmp_path / "once", texts))
    twice = read_text_corpus(write_texts(tmp_path / "twice", texts * 2))
    assert once == twice


def test_byte_order_mark_and_line_ends_of_windows_are_left_out(tmp_path):
    (tmp_path / "book.txt").write_bytes(b"\xef\xbb\xbf" + b"a\r\n" * 100)
    corpus = read_text_corpus(tmp_path / "book.txt")
    assert "".join(vars(corpus).values()) == "a\n" * 100


def test_hidden_and_other_files_are_left_out(tmp_path):
    write_texts(tmp_path, ["a"])
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "note.txt").write_text("b")
    (tmp_path / ".hidden.txt").write_text("c")
    (tmp_path / "image.png").write_bytes(b"\xff")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "UPPER.TXT").write_text("d")
    assert [path.name for path in list_text_files(tmp_path)] == ["00.txt", "UPPER.TXT"]


def test_missing_paths_are_refused(tmp_path):
    with raises_code("path-missing", tmp_path / "none"):
        read_text_corpus(tmp_path / "none")


def test_pipe_is_refused_rather_than_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    with raises_code("path-kind", "pipe.txt"):
        read_text_corpus(tmp_path / "pipe.txt")
    with raises_code("dataset-invalid", tmp_path):
        read_text_corpus(tmp_path)


def test_folder_without_text_is_refused(tmp_path):
    with raises_code("dataset-invalid", tmp_path, ".txt"):
        read_text_corpus(tmp_path)
    write_texts(tmp_path, ["", ""])
    with raises_code("dataset-invalid", tmp_path):
        read_text_corpus(tmp_path)


@pytest.mark.parametrize("content", ["caf\xe9".encode("latin-1"), "plain".encode("utf-16"), b"\xed\xa0\x80"])
def test_files_that_are_not_utf8_are_refused_by_name(tmp_path, content):
    (tmp_path / "old.txt").write_bytes(content)
    with raises_code("dataset-invalid", "old.txt"):
        read_text_corpus(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_unreadable_file_is_refused_by_name(tmp_path):
    (tmp_path / "secret.txt").touch(mode=0)
    with raises_code("path-access", "secret.txt"):
        read_text_corpus(tmp_path)
