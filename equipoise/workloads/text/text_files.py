"""Your own text files as a corpus: whole files in each split, or stretches of each file."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path

from equipoise.errors import EquipoiseError
from equipoise.workloads.text.corpus import Corpus

SPLIT_SHARES = {"train": 0.6, "validation": 0.15, "reference": 0.1, "test": 0.15}
MIN_PART_OF_SHARE = 1 / 3  # of its share that a split must get from whole files; else files are cut into stretches


def read_text_corpus(path: Path) -> Corpus:
    """Read a text file, or all .txt files of a folder, and split the text; equal files count once."""
    texts = list(dict.fromkeys(read_text_file(file) for file in list_text_files(path)))
    if not any(texts):
        raise EquipoiseError(
            "dataset-invalid", f"cannot read text from --data {path}: its files are empty", "give more text"
        )
    return split_by_files(texts) or split_into_stretches(texts)


def list_text_files(path: Path) -> list[Path]:
    """Return a file itself, or all .txt files below a folder; refuse a path without any."""
    if not path.exists():
        raise EquipoiseError(
            "path-missing", f"cannot read text from --data {path}: it does not exist", "give a file or a folder"
        )
    if not path.is_dir() and not path.is_file():
        raise EquipoiseError("path-kind", f"cannot read text from --data {path}: it is neither a file nor a folder")
    if not (paths := find_text_files(path)):
        raise EquipoiseError(
            "dataset-invalid",
            f"cannot read text from --data {path}: the folder holds no .txt file",
            "give a folder of text files, or one text file",
        )
    return paths


def find_text_files(path: Path) -> list[Path]:
    """Return a file itself, or all .txt files below a folder in sorted order, without hidden ones."""
    if not path.is_dir():
        return [path]
    paths = sorted(file for file in path.rglob("*") if file.suffix.lower() == ".txt" and file.is_file())
    return [file for file in paths if not any(part.startswith(".") for part in file.relative_to(path).parts)]


def read_text_file(path: Path) -> str:
    """Read a file of UTF-8, with or without a byte order mark; line ends become newlines."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"cannot read text from {path}: byte {error.start:,} is not UTF-8"
        raise EquipoiseError("dataset-invalid", problem, "convert the file to UTF-8") from None
    except OSError as error:
        raise EquipoiseError("path-access", f"cannot read text from {path}: {error.strerror}") from None


def split_by_files(texts: Sequence[str]) -> Corpus | None:
    """Deal whole files to the splits, longest first, each to the split that lacks most; None if that works out badly.

    Each split needs a file, and files must not be too unequal: a book and three notes do not make four splits.
    """
    parts: dict[str, list[str]] = {split: [] for split in SPLIT_SHARES}
    total = sum(map(len, texts))

    def missing_characters(split: str) -> float:
        return SPLIT_SHARES[split] * total - sum(map(len, parts[split]))

    for index, text in enumerate(sorted(texts, key=len, reverse=True)):
        empty = [split for split in parts if not parts[split]]
        choices = empty if len(texts) - index <= len(empty) else list(parts)
        parts[max(choices, key=missing_characters)].append(text)
    if any(missing_characters(split) > (1 - MIN_PART_OF_SHARE) * SPLIT_SHARES[split] * total for split in parts):
        return None
    return join_parts(parts)


def split_into_stretches(texts: Sequence[str]) -> Corpus:
    """Cut each file into four stretches, so that every split has a part of every file."""
    parts: dict[str, list[str]] = {split: [] for split in SPLIT_SHARES}
    for text in texts:
        cuts = [round(share * len(text)) for share in accumulate(SPLIT_SHARES.values(), initial=0)]
        for part, (start, end) in zip(parts.values(), pairwise(cuts), strict=True):
            part.append(text[start:end])
    return join_parts(parts)


def join_parts(parts: dict[str, list[str]]) -> Corpus:
    """Return the corpus whose splits are these texts, one after the other."""
    return Corpus(**{split: "".join(texts) for split, texts in parts.items()})
