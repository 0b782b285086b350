"""Statistics of the rows of a table: values and spreads of numbers, their pairs, categories, missing values, answer.

Numbers are in standard deviations of the reference. The spread of a column is its distance from the mean of the
reference, so a wider or narrower column moves it even where its mean stays. The product of two columns moves where
their correlation does, even where neither column has changed. Each frequent category of a column is 1 or
0, and so is any other value, which the reference hardly knows. A missing number counts as the mean of its column, so
that it moves the share of missing values alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.features.column_scaling import ColumnScaling, fit_column_scaling
from equipoise.drift.features.confidence import confidence_statistics
from equipoise.drift.features.image_schema import build_confidence_statistics
from equipoise.drift.features.statistic_schema import (
    CATEGORY_CAUSE,
    COLUMN_CAUSE,
    JOINT_CAUSE,
    MISSING_CAUSE,
    SCALE_CAUSE,
    StatisticSchema,
    WatchedStatistic,
    build_schema,
)
from equipoise.drift.features.table_columns import Columns, category_values, numeric_values, stack_numeric_values
from equipoise.type_aliases import AnyArray

MAX_PAIRED_COLUMNS = 10  # the first numeric columns, of which each pair has a statistic: their number grows as squares
MAX_CATEGORIES = 8  # of a column that have a statistic of their own, the most frequent ones
MIN_CATEGORY_SHARE = 0.01  # of the rows: rarer categories count as other values
NUMERIC_KINDS = "fiub"  # of the data types of NumPy
ANSWER_BIN_NAMES = ("lowest quarter", "second quarter", "third quarter", "highest quarter")
"""names of the bins of a number, by its quantiles in the reference: they take the place of classes"""


@dataclass(frozen=True, eq=False)
class TableEncoder:
    """Turns rows and the answers of a model into the statistics that charts watch, as the reference scales them."""

    numeric_columns: tuple[str, ...]
    scaling: ColumnScaling
    categories: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """name of each column of categories, with those that have a statistic of their own"""
    answer_edges: NDArray[np.float64] | None = None
    """(bins - 1,) edges of the bins of a number; None where the model answers with logits of classes"""
    answer_scaling: ColumnScaling | None = None
    """of the number that the model answers with; None for classes"""

    @cached_property
    def schema(self) -> StatisticSchema:
        """Schema of the statistics that the encoder computes."""
        inputs = [
            *(describe_value(name) for name in self.numeric_columns),
            *(describe_spread(name) for name in self.spread_columns),
            *(describe_pair(first, second) for first, second in combinations(self.paired_columns, 2)),
            *(
                describe_indicator(f"{name} = {value}", name, f"{CATEGORY_CAUSE} {name}")
                for name, values in self.categories
                for value in values
            ),
            *(describe_indicator(f"other {name}", name, f"{CATEGORY_CAUSE} {name}") for name, _ in self.categories),
            *(describe_indicator(f"missing {name}", name, f"{MISSING_CAUSE} {name}") for name in self.column_names),
        ]
        answer = WatchedStatistic(
            name="answer", source="output", unit="standard deviations", cause_weight=0.0, group="answer"
        )
        is_number = self.answer_edges is not None
        outputs = (answer,) if is_number else build_confidence_statistics()
        return build_schema("table", inputs, outputs, has_accuracy=not is_number)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of all columns, the numeric ones first."""
        return (*self.numeric_columns, *(name for name, _ in self.categories))

    @property
    def spread_columns(self) -> tuple[str, ...]:
        """Names of the numeric columns whose spread is watched."""
        return tuple(
            name for name, binary in zip(self.numeric_columns, self.scaling.is_binary, strict=True) if not binary
        )

    @property
    def paired_columns(self) -> tuple[str, ...]:
        """Names of the numeric columns of which each pair is watched."""
        return self.spread_columns[:MAX_PAIRED_COLUMNS]

    def find_category_columns(self, name: str) -> tuple[int, int]:
        """Return which statistics are whether a column of categories is missing, and whether it has another value."""
        missing = self.schema.input_count - len(self.column_names)
        other = missing - len(self.categories) + [column for column, _ in self.categories].index(name)
        return missing + self.column_names.index(name), other

    def statistics(self, columns: Columns, answers: AnyArray) -> NDArray[np.float32]:
        """Return (n, statistics but those of the features) of rows and of the model's answers.

        Answers are numbers (n,), or calibrated logits (n, classes).
        """
        z = self.standardize(columns)
        texts = {name: category_values(columns, name) for name, _ in self.categories}
        indicators = [texts[name] == value for name, values in self.categories for value in values]
        indicators += [
            (texts[name] != "") & ~np.isin(texts[name], np.array(values, dtype=object))
            for name, values in self.categories
        ]
        missing = [~np.isfinite(numeric_values(columns, name)) for name in self.numeric_columns]
        missing += [texts[name] == "" for name, _ in self.categories]
        flags = np.stack([*indicators, *missing], 1).astype(np.float64)
        varied = z[:, ~self.scaling.is_binary]
        first, second = np.triu_indices(len(self.paired_columns), 1)
        pairs = varied[:, first] * varied[:, second]
        parts = [z, np.abs(varied), pairs, flags, self.answer_statistics(answers)]
        return np.concatenate(parts, 1).astype(np.float32)

    def standardize(self, columns: Columns) -> NDArray[np.float64]:
        """Return (n, numeric columns) in standard deviations, missing values as 0."""
        count = len(next(iter(columns.values())))
        return self.scaling.standardize(stack_numeric_values(columns, self.numeric_columns, count))

    def answer_statistics(self, answers: AnyArray) -> AnyArray:
        """Return the statistics of the answers: of a number its place, of logits their confidence."""
        if self.answer_scaling is None:
            return confidence_statistics(answers, 1.0)
        return self.answer_scaling.standardize(np.asarray(answers).reshape(-1, 1))

    def classes(self, answers: AnyArray) -> NDArray[np.int64]:
        """Return (n,) the class of each answer: the bin of a number, or the largest logit."""
        if self.answer_edges is None:
            return np.asarray(np.asarray(answers).argmax(1), np.int64)
        return np.searchsorted(self.answer_edges, np.asarray(answers).ravel(), "right").astype(np.int64)

    def features(self, columns: Columns) -> NDArray[np.float32]:
        """Return (n, width): rows as numbers of a like scale, for models that have no features of their own."""
        texts = [(category_values(columns, name), values) for name, values in self.categories]
        flags = [(text == value)[:, None] for text, values in texts for value in values]
        return np.concatenate([self.standardize(columns), *flags], 1).astype(np.float32)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the encoder as arrays by name, to be stored in a file."""
        arrays = {f"scaling.{field.name}": getattr(self.scaling, field.name) for field in fields(ColumnScaling)}
        arrays["numeric columns"] = np.array(self.numeric_columns, dtype=str)
        arrays["category columns"] = np.array([name for name, _ in self.categories], dtype=str)
        for index, (_, values) in enumerate(self.categories):
            arrays[f"categories {index}"] = np.array(values, dtype=str)
        if self.answer_edges is not None and self.answer_scaling is not None:
            scaling = self.answer_scaling
            arrays["answer edges"] = self.answer_edges
            arrays |= {f"answer scaling.{field.name}": getattr(scaling, field.name) for field in fields(ColumnScaling)}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "TableEncoder":
        """Build the encoder from the arrays of `to_arrays`."""
        names = [field.name for field in fields(ColumnScaling)]
        columns = arrays["category columns"].tolist()
        categories = tuple((name, tuple(arrays[f"categories {i}"].tolist())) for i, name in enumerate(columns))
        scaling = ColumnScaling(**{name: arrays[f"scaling.{name}"] for name in names})
        numeric = tuple(arrays["numeric columns"].tolist())
        if "answer edges" not in arrays:
            return cls(numeric, scaling, categories)
        answer_scaling = ColumnScaling(**{name: arrays[f"answer scaling.{name}"] for name in names})
        return cls(numeric, scaling, categories, arrays["answer edges"], answer_scaling)


def describe_value(name: str) -> WatchedStatistic:
    """Describe the value of a numeric column."""
    return WatchedStatistic(name=name, unit="standard deviations", cause=f"{COLUMN_CAUSE} {name}", group=name)


def describe_spread(name: str) -> WatchedStatistic:
    """Describe the spread of a numeric column, in mean distances from the mean of the reference."""
    return WatchedStatistic(
        name=f"spread of {name}",
        unit="standard deviations",
        cause=f"{SCALE_CAUSE} {name}",
        group=name,
        condition_weight=0.5,
    )


def describe_pair(first: str, second: str) -> WatchedStatistic:
    """Describe the product of two numeric columns, whose mean is their correlation while neither has moved."""
    name = f"{first} with {second}"
    return WatchedStatistic(
        name=name, unit="of correlation", cause=JOINT_CAUSE, group=name, condition_weight=0.0, onset_weight=0.5
    )


def describe_indicator(name: str, column: str, cause: str) -> WatchedStatistic:
    """Describe a statistic that is 1 for some rows and 0 for the others."""
    return WatchedStatistic(name=name, unit="of the rows", is_binary=True, cause=cause, group=column)


def fit_table_encoder(
    columns: Columns, answers: AnyArray, category_columns: Sequence[str] | None = None
) -> TableEncoder:
    """Fit the encoder to the rows of a reference and the model's answers: numbers (n,), or logits (n, classes).

    Columns that hold no numbers are categories; `category_columns` names those that are categories although they do.
    """
    given = {*(category_columns or ())}
    numeric = tuple(
        name for name in columns if name not in given and np.asarray(columns[name]).dtype.kind in NUMERIC_KINDS
    )
    categories = tuple(
        (name, frequent_categories(category_values(columns, name))) for name in columns if name not in numeric
    )
    answers = np.asarray(answers, np.float64)
    values = stack_numeric_values(columns, numeric, len(answers))
    if answers.ndim == 2 and answers.shape[1] > 1:
        return TableEncoder(numeric, fit_column_scaling(values), categories)
    edges = np.quantile(answers, np.arange(1, len(ANSWER_BIN_NAMES)) / len(ANSWER_BIN_NAMES))
    return TableEncoder(
        numeric, fit_column_scaling(values), categories, edges, fit_column_scaling(answers.reshape(-1, 1))
    )


def frequent_categories(values: AnyArray) -> tuple[str, ...]:
    """Return the most frequent categories of a column, the most frequent first."""
    names, counts = np.unique(values[values != ""].astype(str), return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MAX_CATEGORIES]
    return tuple(str(names[index]) for index in order if counts[index] >= MIN_CATEGORY_SHARE * len(values))


def select_watched_columns(columns: Columns, max_statistics: int) -> list[str]:
    """Return the first columns whose statistics are not more than so many, without those of pairs.

    Thresholds of all charts are simulated together, which takes memory and time in proportion to their number.
    """
    counts = [count_column_statistics(columns, name) for name in columns]
    return [name for name, total in zip(columns, np.cumsum(counts).tolist(), strict=True) if total <= max_statistics]


def count_column_statistics(columns: Columns, name: str) -> int:
    """Return how many statistics watch a column by itself: of numbers their place, spread and missing values."""
    if np.asarray(columns[name]).dtype.kind in NUMERIC_KINDS:
        return 3
    return len(frequent_categories(category_values(columns, name))) + 2
