"""Text in four splits: eleven plays of Shakespeare that come with the package."""

import tarfile
from dataclasses import dataclass
from importlib.resources import files

PLAYS = {
    "train": (
        "as_you_like_it",
        "coriolanus",
        "henry_iv_part_1",
        "julius_caesar",
        "lear",
        "othello",
        "romeo_and_juliet",
        "twelfth_night",
    ),
    "validation": ("hamlet",),
    "reference": ("tempest",),
    "test": ("macbeth",),
}
"""plays of each split, one after the other"""


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Texts of the four splits; no piece of text is in two of them."""

    train: str
    validation: str
    reference: str
    test: str


def load_shakespeare() -> Corpus:
    """Read the plays of Shakespeare that come with the package, split by plays."""
    with (
        files("equipoise.workloads.text").joinpath("shakespeare.tar.bz2").open("rb") as file,
        tarfile.open(fileobj=file, mode="r:bz2") as archive,
    ):
        contents = {member.name: archive.extractfile(member) for member in archive}
        plays = {name.removesuffix(".txt"): text.read().decode("ascii") for name, text in contents.items() if text}
    return Corpus(**{split: "".join(plays[name] for name in names) for split, names in PLAYS.items()})
