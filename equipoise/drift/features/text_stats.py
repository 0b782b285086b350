"""Statistics of texts: how well the model predicts them, how long they are, and which characters they use.

Nats per token rise with another language or topic; the length and the characters are of the text alone.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.features.statistic_schema import StatisticSchema, WatchedStatistic, build_schema
from equipoise.type_aliases import AnyArray

COMMON_CHARACTER_SHARE = 0.99  # of the characters of a reference that the common ones make up; the others are rare

TEXT_SCHEMA: StatisticSchema = build_schema(
    "text",
    [
        WatchedStatistic(name="length", cause="length", group="length"),
        WatchedStatistic(name="rare characters", unit="of the characters", cause="characters", group="characters"),
        WatchedStatistic(
            name="new characters", unit="of the texts", is_binary=True, cause="characters", group="characters"
        ),
    ],
    [
        WatchedStatistic(
            name="nats per token", source="output", unit="nats", cause="language or topic", group="nats per token"
        )
    ],
    has_accuracy=False,
)
"""the length is that of the text in characters, as a logarithm"""


@dataclass(frozen=True)
class TextEncoder:
    """Turns texts and how well a model predicts them into the statistics that charts watch."""

    common_characters: frozenset[str]
    """characters that make up COMMON_CHARACTER_SHARE of the reference"""
    known_characters: frozenset[str]
    """all characters of the reference"""

    @property
    def schema(self) -> StatisticSchema:
        """Schema of the statistics that the encoder computes."""
        return TEXT_SCHEMA

    def statistics(self, texts: Sequence[str], nats_per_token: AnyArray) -> NDArray[np.float32]:
        """Return (n, statistics but those of the features) of texts and of the mean loss (n,) of their tokens."""
        rows = [self.describe_text(text) for text in texts]
        nats = np.asarray(nats_per_token, np.float64).reshape(-1, 1)
        return np.concatenate([np.array(rows, np.float64).reshape(-1, 3), nats], 1).astype(np.float32)

    def describe_text(self, text: str) -> tuple[float, float, float]:
        """Return the logarithm of the length, the share of rare characters, and whether there are new characters."""
        counts = Counter(text)
        rare = sum(count for character, count in counts.items() if character not in self.common_characters)
        is_new = not counts.keys() <= self.known_characters
        return float(np.log(len(text) + 1)), rare / max(len(text), 1), float(is_new)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the encoder as arrays by name, to be stored in a file."""
        return {name: join_codes(getattr(self, name)) for name in ("common_characters", "known_characters")}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "TextEncoder":
        """Build the encoder from the arrays of `to_arrays`."""
        common, known = (
            frozenset(map(chr, arrays[name].tolist())) for name in ("common_characters", "known_characters")
        )
        return cls(common, known)


def join_codes(characters: frozenset[str]) -> NDArray[np.int64]:
    """Return the sorted code points of characters."""
    return np.array(sorted(map(ord, characters)), np.int64)


def fit_text_encoder(texts: Sequence[str]) -> TextEncoder:
    """Fit the encoder to the texts of a reference."""
    counts = Counter[str]()
    for text in texts:
        counts.update(text)
    total, seen, common = sum(counts.values()), 0, set[str]()
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if seen >= COMMON_CHARACTER_SHARE * total:
            break
        common.add(character)
        seen += count
    return TextEncoder(frozenset(common), frozenset(counts))
