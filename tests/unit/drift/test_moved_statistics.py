"""Which of the statistics that have moved are named as causes, and how far they are said to have moved."""

from dataclasses import replace

import numpy as np
import pytest

from equipoise.drift.diagnosis.moved_statistics import (
    OverallShift,
    build_statistic_effect,
    list_moved_statistics,
    pool_binary_variance,
)
from equipoise.drift.diagnosis.window import Window
from equipoise.drift.features.statistic_schema import build_schema
from equipoise.drift.features.table_stats import describe_indicator, describe_pair, describe_spread, describe_value
from equipoise.drift.features.text_stats import LENGTH_STATISTIC
from equipoise.proportions import Z_95
from tests.support.quick_profile import build_quick_profile

SCHEMA = build_schema(
    "table",
    [
        *(describe_value(name) for name in "abcd"),
        describe_spread("a"),
        describe_pair("a", "b"),
        describe_indicator("city = Bern", "city", "categories of city"),
        describe_indicator("city = Biel", "city", "categories of city"),
        replace(LENGTH_STATISTIC, group="text"),
    ],
    [],
)
NAMES = SCHEMA.names


def build_window():
    profile = build_quick_profile()
    zeros = np.zeros(len(SCHEMA))
    return Window(replace(profile, baseline=replace(profile.baseline, schema=SCHEMA)), np.array([20.0]), zeros, zeros)


def build_shift(mean=0.0, standard_errors=1.0, **shifts):
    """Return the shifts of statistics by name, `_` for a blank, in standard deviations."""
    values = np.zeros(len(SCHEMA))
    for name, shift in shifts.items():
        values[NAMES.index(name.replace("_is_", " = ").replace("_", " "))] = shift
    return OverallShift(values, np.ones(len(SCHEMA)), np.full(len(SCHEMA), mean), standard_errors)


def test_variance_of_a_share_is_that_of_both_sets_together():
    is_binary, reference_share = np.array([True, True, False]), np.array([0.0, 0.5, 0.0])
    variance = np.array([0.0, 0.25, 4.0])
    pooled = pool_binary_variance(is_binary, variance, reference_share, np.array([0.4, 0.5, 9.0]), (100.0, 300.0))
    assert pooled == pytest.approx([0.1 * 0.9, 0.25, 4.0])  # 40 of 400; 0.625 has less variance than the reference


@pytest.mark.parametrize(
    ("shifts", "named"),
    [
        ({"a": 10.0, "b": -9.0, "c": 8.0, "d": 7.0}, ["a", "b", "c"]),  # three at most
        ({"d": 4.0, "b": 3.4}, ["d"]),  # the other may be chance
        ({"d": 3.4}, []),
        ({"d": 3.6}, ["d"]),
        ({"a": 30.0, "b": 6.0}, ["a"]),  # less than a twentieth of the squares
        ({"a": 30.0, "b": 8.0}, ["a", "b"]),
        ({"a": 8.0, "spread_of_a": 10.0}, ["a"]),  # about as much
        ({"a": 7.0, "spread_of_a": 10.0, "b": 6.0}, ["spread of a", "b"]),
        ({"a": 8.0, "a_with_b": 10.0}, ["a"]),
        ({"a": 7.0, "a_with_b": 10.0}, ["a with b", "a"]),
        ({"a_with_b": -10.0}, ["a with b"]),
        ({"city_is_Bern": -10.0, "city_is_Biel": 8.0}, ["city = Biel"]),
        ({"city_is_Bern": -10.0, "city_is_Biel": 7.0}, ["city = Bern"]),
        ({"distance": 50.0, "a": 5.0}, ["a"]),  # the features of the model are no cause
    ],
)
def test_causes_are_what_has_moved_most_one_of_each_group(shifts, named):
    assert [NAMES[column] for column in list_moved_statistics(build_window(), build_shift(**shifts))] == named


def describe_effect(name, mean=0.0, **shifts):
    overall = build_shift(mean, standard_errors=0.1, **shifts)
    return build_statistic_effect(build_window(), overall, NAMES.index(name))


@pytest.mark.parametrize(
    ("name", "mean", "shifts", "expected"),
    [
        ("a", 5.0, {"a": 0.5}, lambda shift: shift),
        ("b", 5.0, {"b": -0.5}, lambda shift: shift),
        ("spread of a", 0.8, {"spread_of_a": 0.4}, lambda shift: 1 + shift / 0.8),
        ("spread of a", 0.8, {"spread_of_a": -0.7}, lambda shift: max(1 + shift / 0.8, 0)),
        ("city = Bern", 0.6, {"city_is_Bern": 0.3}, lambda shift: min(0.6 + shift, 1)),
        ("city = Bern", 0.2, {"city_is_Bern": -0.1}, lambda shift: max(0.2 + shift, 0)),
        ("length", 3.0, {"length": 0.4}, np.exp),
    ],
)
def test_effects_are_in_their_own_units_with_an_interval(name, mean, shifts, expected):
    effect = describe_effect(name, mean, **shifts)
    (shift,) = shifts.values()
    bounds = [expected(shift), expected(shift - Z_95 * 0.1), expected(shift + Z_95 * 0.1)]
    assert [effect.value, effect.low, effect.high] == pytest.approx(bounds)
    assert effect.detail.endswith("higher" if shift > 0 else "lower") and effect.explained == pytest.approx(1)
    assert effect.unit == ("times" if name == "spread of a" else SCHEMA.statistics[NAMES.index(name)].unit)


def test_effect_says_which_category_or_pair_and_its_share_of_all_that_moved():
    moved = {"city_is_Bern": -0.3, "a_with_b": 0.4}
    assert describe_effect("city = Bern", 0.6, **moved).detail == "city = Bern lower"
    pair = describe_effect("a with b", **moved)
    assert pair.detail == "a with b higher" and pair.explained == pytest.approx(0.16 / 0.25)
    assert describe_effect("a", a=0.2).detail == "higher"
