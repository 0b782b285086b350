"""Statistics of texts: how well the model predicts them, how long they are, and which characters they use.

Nats per token rise with another language or topic; the length and the characters are of the text alone. The length is
watched where the texts of the reference have several: windows that a text was cut into all have the same.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.features.statistic_schema import StatisticSchema, WatchedStatistic, build_schema
from equipoise.drift.features.text_windows import WindowReference
from equipoise.type_aliases import AnyArray

COMMON_CHARACTER_SHARE = 0.99  # of the characters of a reference that the common ones make up; the others are rare

LENGTH_STATISTIC = WatchedStatistic(name="length", cause="length", group="length")
"""the logarithm of the length in characters"""
CHARACTER_STATISTICS = (
    WatchedStatistic(name="rare characters", unit="of the characters", cause="characters", group="characters"),
    WatchedStatistic(
        name="new characters", unit="of the texts", is_binary=True, cause="characters", group="characters"
    ),
)
NATS_STATISTIC = WatchedStatistic(
    name="nats per token", source="output", unit="nats", cause="language or topic", group="nats per token"
)
TEXT_SCHEMA: StatisticSchema = build_schema(
    "text", [LENGTH_STATISTIC, *CHARACTER_STATISTICS], [NATS_STATISTIC], has_accuracy=False
)
WINDOW_SCHEMA: StatisticSchema = build_schema("text", CHARACTER_STATISTICS, [NATS_STATISTIC], has_accuracy=False)


@dataclass(frozen=True)
class TextEncoder:
    """Turns texts and how well a model predicts them into the statistics that charts watch."""

    common_characters: frozenset[str]
    """characters that make up COMMON_CHARACTER_SHARE of the reference"""
    known_characters: frozenset[str]
    """all characters of the reference and of the training texts"""
    windows: WindowReference | None = None
    """what is usual for windows, where the reference consists of windows of one length"""

    @property
    def schema(self) -> StatisticSchema:
        """Schema of the statistics that the encoder computes."""
        return WINDOW_SCHEMA if self.windows else TEXT_SCHEMA

    def statistics(self, texts: Sequence[str], nats_per_token: AnyArray) -> NDArray[np.float32]:
        """Return (n, statistics but those of the features) of texts and of the mean loss (n,) of their tokens."""
        rows = np.array([self.describe_text(text) for text in texts], np.float64).reshape(-1, 3)
        nats = np.asarray(nats_per_token, np.float64)
        if self.windows:
            lengths = measure_lengths(texts)
            rare = self.windows.scale_rare_shares(rows[:, 1], lengths)
            columns = [rare, rows[:, 2], self.windows.scale_nats(nats, lengths)]
        else:
            columns = [*rows.T, nats]
        return np.stack(columns, 1).astype(np.float32)

    def describe_text(self, text: str) -> tuple[float, float, float]:
        """Return the logarithm of the length, the share of rare characters, and whether there are new characters."""
        counts = Counter(text)
        rare = sum(count for character, count in counts.items() if character not in self.common_characters)
        is_new = not counts.keys() <= self.known_characters
        return float(np.log(len(text) + 1)), rare / max(len(text), 1), float(is_new)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the encoder as arrays by name, to be stored in a file."""
        arrays = {name: join_codes(getattr(self, name)) for name in ("common_characters", "known_characters")}
        return arrays | (self.windows.to_arrays() if self.windows else {})

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "TextEncoder":
        """Build the encoder from the arrays of `to_arrays`."""
        common, known = (
            frozenset(map(chr, arrays[name].tolist())) for name in ("common_characters", "known_characters")
        )
        return cls(common, known, WindowReference.from_arrays(arrays) if "nats_by_context" in arrays else None)


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


def fit_window_encoder(texts: Sequence[str], token_nats: AnyArray) -> TextEncoder:
    """Fit the encoder to windows of one length, given the loss (n, length - 1) of each token after the first."""
    encoder = fit_text_encoder(texts)
    rare_share = float(np.mean([encoder.describe_text(text)[1] for text in texts]))
    nats = tuple(np.asarray(token_nats, np.float64).mean(0).tolist())
    return replace(encoder, windows=WindowReference(nats, rare_share))


def measure_lengths(texts: Sequence[str]) -> NDArray[np.int64]:
    """Return (n,) the number of characters of each text."""
    return np.array([len(text) for text in texts], np.int64)
