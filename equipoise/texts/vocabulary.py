"""Characters as tokens: the numbers that stand for the characters of a text."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Vocabulary:
    """Characters in the order of their tokens; the token after the last stands for every other character."""

    characters: str
    """different characters, sorted"""

    def __len__(self) -> int:
        return len(self.characters) + 1

    @cached_property
    def code_points(self) -> NDArray[np.uint32]:
        """Code points of the characters."""
        return to_code_points(self.characters)

    def encode(self, text: str) -> NDArray[np.int64]:
        """Return the token of each character."""
        code_points = to_code_points(text)
        tokens = np.searchsorted(self.code_points, code_points)
        candidates = self.code_points[np.minimum(tokens, len(self.characters) - 1)]
        return np.where(candidates == code_points, tokens, len(self.characters)).astype(np.int64)


def build_vocabulary(text: str) -> Vocabulary:
    """Return the vocabulary of the characters in a text."""
    return Vocabulary("".join(sorted(set(text))))


def to_code_points(text: str) -> NDArray[np.uint32]:
    """Return the Unicode code point of each character."""
    return np.frombuffer(text.encode("utf-32-le"), np.dtype("<u4")).astype(np.uint32)
