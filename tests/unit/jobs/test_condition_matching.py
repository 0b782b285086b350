"""A change of images is the known condition that it resembles, and no other."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from equipoise.drift.adaptation.workload import CorruptionAmount, DriftCondition, apply_corruptions
from jobs.publishing.known_conditions import (
    LearnedCondition,
    are_similar_changes,
    build_known_conditions,
    find_condition,
    name_condition,
    require_new_condition,
)
from tests.support.drift_data import render_shapes, score_shapes
from tests.support.errors import raises_code
from tests.support.known_conditions import (
    DARKER,
    NOISE,
    WARMER,
    build_condition,
    build_model,
    build_recipe,
    build_verdict,
)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ((DARKER,), "darker, -1 stops"),
        ((WARMER, DARKER), "warmer, 4,400 K and darker, -1 stops"),
        ((WARMER, DARKER, NOISE), "warmer, 4,400 K and darker, -1 stops"),
        ((NOISE,), "noise, 12.5 levels of 255"),
        ((CorruptionAmount("reflection", "all over", 0.1),), "reflection all over, 0.1 of full light"),
    ],
)
def test_condition_is_named_by_its_two_main_changes(changes, expected):
    assert name_condition(build_verdict(), build_recipe(*changes), []) == expected


def test_condition_without_known_changes_is_named_by_its_day():
    verdict = build_verdict(since={"at": "2026-03-05T10:00:00+00:00"})
    assert name_condition(verdict, build_recipe(), []) == "change of 2026-03-05"


def test_names_of_conditions_are_numbered_and_never_repeat():
    names = []
    for _ in range(5):
        names.append(name_condition(build_verdict(), build_recipe(DARKER), names))
    assert names == ["darker, -1 stops", *(f"darker, -1 stops ({number})" for number in (2, 3, 4, 5))]
    names.remove("darker, -1 stops (3)")
    assert name_condition(build_verdict(), build_recipe(DARKER), names) == "darker, -1 stops (3)"


def test_condition_is_found_by_the_name_in_a_verdict():
    manifest = build_model([build_condition(DARKER), build_condition(WARMER, name="warmer")]).manifest
    assert find_condition(manifest, "warmer") == DriftCondition((WARMER,))
    assert find_condition(manifest, "as published") == DriftCondition()
    assert find_condition(manifest, "cooler") is None and find_condition(manifest, None) is None


def test_profile_knows_each_condition_and_what_lies_halfway_to_it(shapes):
    day = LearnedCondition("change of today", DriftCondition(), render_shapes(110, 9)[0], 1.0)
    learned = [build_condition(DARKER), day]
    known = build_known_conditions(score_shapes, learned, shapes.reference)
    assert [(part.name, part.has_labels, len(part.outputs.pictures)) for part in known] == [
        ("darker", False, 120),
        ("darker", True, 400),
        ("change of today", False, 110),
    ]
    halfway = apply_corruptions(shapes.reference.inputs, [replace(DARKER, value=-0.5)])
    assert torch.equal(known[1].outputs.pictures, halfway)
    np.testing.assert_array_equal(known[1].outputs.labels, shapes.reference.targets)
    np.testing.assert_array_equal(known[0].outputs.labels, score_shapes(learned[0].images)[0].argmax(1))


@pytest.mark.parametrize(
    ("value", "is_similar"), [(-1.0, True), (-1.09, True), (-0.91, True), (-1.11, False), (-0.89, False), (1.0, False)]
)
def test_sizes_within_a_tenth_of_a_known_change_are_the_same_change(value, is_similar):
    assert are_similar_changes([replace(DARKER, value=value)], [DARKER]) == is_similar


def test_colour_temperatures_are_compared_in_mired():
    distance = 1e6 / 4400 - 1e6 / 6500
    for share, is_similar in ((1.09, True), (0.91, True), (1.11, False), (0.89, False)):
        kelvin = 1e6 / (1e6 / 6500 + share * distance)
        assert are_similar_changes([replace(WARMER, value=kelvin)], [WARMER]) == is_similar


def test_similar_changes_have_the_same_causes_in_any_order():
    assert are_similar_changes([NOISE, DARKER], [DARKER, NOISE])
    assert not are_similar_changes([DARKER], [DARKER, NOISE])
    assert not are_similar_changes([DARKER, NOISE], [DARKER])
    half = replace(DARKER, value=-0.5)
    assert are_similar_changes([half, half], [DARKER])  # one after the other


def test_adaptation_to_a_known_condition_is_refused_by_its_name():
    manifest = build_model([build_condition(WARMER, name="warmer"), build_condition(DARKER)]).manifest
    published, unnamed = build_verdict(condition="as published"), build_verdict()
    for verdict in (published, unnamed):
        with raises_code("adaptation-impossible", "knows this condition already, as 'darker'", "--forget"):
            require_new_condition(manifest, build_recipe(replace(DARKER, value=-1.05)), verdict)
        require_new_condition(manifest, build_recipe(replace(DARKER, value=-1.5)), verdict)


def test_change_relative_to_a_known_condition_is_not_mistaken_for_it():
    """Darker again, compared with requests that are dark already, is twice as dark."""
    manifest = build_model([build_condition(DARKER)]).manifest
    twice = build_recipe(DARKER, before=[DARKER])
    require_new_condition(manifest, twice, build_verdict(condition="darker"))
    with raises_code("adaptation-impossible", "'darker'"):  # as in a verdict from before the condition was learned
        require_new_condition(manifest, twice, build_verdict())


def test_adaptation_to_no_change_of_images_is_not_compared_with_known_conditions():
    manifest = build_model([build_condition(DARKER)]).manifest
    require_new_condition(manifest, build_recipe(before=[DARKER]), build_verdict(condition="darker"))
