"""Sentences on what has moved in rows and texts name the column, the size and what the reference has."""

import pytest

from equipoise.drift.diagnosis.effects import Effect
from equipoise.drift.diagnosis.statistic_sentences import describe_moved_statistic
from equipoise.drift.features.table_stats import describe_indicator, describe_pair, describe_spread, describe_value
from equipoise.drift.features.text_stats import TEXT_SCHEMA

LENGTH, RARE, NEW, NATS = TEXT_SCHEMA.statistics[:4]


def describe(statistic, value, low, high, unit=None, reference_mean=0.0):
    effect = Effect(statistic.cause, "", unit or statistic.unit, value, low, high, explained=1.0, kind=-1, place=0.0)
    return describe_moved_statistic(statistic, effect, reference_mean)


@pytest.mark.parametrize(
    ("statistic", "numbers", "sentence"),
    [
        (
            describe_value("x3"),
            (0.5, 0.42, 0.58),
            "column x3 lies 0.5 standard deviations higher than in the reference (0.42 to 0.58)",
        ),
        (
            describe_value("x3"),
            (-0.5, -0.58, -0.42),
            "column x3 lies 0.5 standard deviations lower than in the reference (0.42 to 0.58)",
        ),
        (
            describe_spread("x4"),
            (1.5, 1.4, 1.6, "times"),
            "column x4 is spread 1.5 times as widely as in the reference (1.4 to 1.6)",
        ),
        (
            describe_pair("x1", "x2"),
            (0.9, 0.8, 1.0),
            "the correlation of x1 with x2 is 0.9 higher than in the reference (0.8 to 1)",
        ),
        (
            describe_indicator("missing x8", "x8", "missing values of x8"),
            (0.2, 0.1, 0.3, None, 0.004),
            "column x8 has no value in 20% of the rows, 0.4% in the reference",
        ),
        (
            describe_indicator("city = Bern", "city", "categories of city"),
            (0.105, 0.1, 0.2, None, 0.6),
            "city = Bern holds in 10% of the rows, 60% in the reference",
        ),
        (
            describe_indicator("other city", "city", "categories of city"),
            (1.0, 0.9, 1.0),
            "column city has a rare or new value in 100% of the rows, 0% in the reference",
        ),
        (LENGTH, (1.5, 1.4, 1.6), "the texts are 1.5 times as long as in the reference (1.4 to 1.6)"),
        (RARE, (0.13, 0.1, 0.2, None, 0.01), "rare characters make up 13% of the characters, 1% in the reference"),
        (NEW, (0.3, 0.2, 0.4), "characters new to the model occur in 30% of the texts, 0% in the reference"),
        (NATS, (0.2, 0.18, 0.22), "the nats per token are 0.2 nats higher than in the reference (0.18 to 0.22)"),
    ],
)
def test_sentence_says_what_moved_and_by_how_much(statistic, numbers, sentence):
    assert describe(statistic, *numbers) == sentence
