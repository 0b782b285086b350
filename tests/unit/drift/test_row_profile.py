"""Profiles of rows and of texts: stored, compared with others, and the causes that they name."""

from functools import cache

import numpy as np
import pytest

from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.stream_verdict import compute_stream_verdict
from equipoise.drift.profiling.row_profile import (
    AnsweredRows,
    AnsweredTexts,
    build_table_profile,
    build_text_profile,
    compare_rows,
    compare_texts,
    extract_row_features,
    extract_text_features,
)
from equipoise.drift.reference.profile import ReferenceProfile, profile_from_arrays, reference_to_arrays
from tests.support.errors import raises_code
from tests.support.quick_profile import build_quick_profile

RUN_LENGTH_ROWS = 20_000.0


def test_rows_are_refused_by_a_profile_of_images():
    rows = AnsweredRows({"x": np.zeros(3)}, np.zeros(3))
    with raises_code("reference-unusable", "images"):
        extract_row_features(build_quick_profile(), rows)


def draw_orders(count, seed, colours=(0.6, 0.3, 0.1), shift=0.0):
    """Draw rows of a number and a category, with the logits of a classifier that is right about most."""
    rng = np.random.default_rng(seed)
    colour = rng.choice(["red", "green", "blue"], count, p=colours)
    size, labels = rng.normal(size=count) + shift, rng.integers(0, 2, count)
    logits = np.stack([1 - labels, labels], 1) * 6.0 + rng.normal(size=(count, 2))
    return AnsweredRows({"size": size, "colour": colour}, logits, labels)


@cache
def build_order_profile() -> ReferenceProfile:
    return build_table_profile(draw_orders(1000, 1), ("small", "large"))


def run_rows(profile, *parts):
    """Return the verdict on rows in order, a step of 16 rows at a time."""
    detector = StreamDetector.start(profile, RUN_LENGTH_ROWS)
    for part in parts:
        for start in range(0, len(part) - 15, 16):
            detector.add_sums(profile.baseline.sum_features(part.select(np.arange(start, start + 16))), 0.0)
            if detector.alarm:
                return compute_stream_verdict(detector)
    return compute_stream_verdict(detector)


def test_changed_categories_are_named_and_classes_keep_an_accuracy():
    profile = build_order_profile()
    clean = extract_row_features(profile, draw_orders(320, 2))
    verdict = run_rows(profile, clean, extract_row_features(profile, draw_orders(640, 3, (0.2, 0.3, 0.5))))
    assert verdict.state == "drift" and verdict.cause == "categories of colour"
    assert verdict.effects[0].unit == "of the rows"
    unchanged = run_rows(profile, clean)
    assert unchanged.state == "ok" and unchanged.accuracy.value > 0.95


def test_column_that_moved_little_is_not_named_beside_one_that_moved_far():
    profile, reference = build_order_profile(), draw_orders(1000, 1)
    changed = draw_orders(400, 7, (0.45, 0.45, 0.1))
    assert compare_rows(profile, reference, changed).cause == "categories of colour"
    changed.columns["size"] += 0.5
    both = compare_rows(profile, reference, changed)
    assert {effect.cause for effect in both.effects} == {"column size", "categories of colour"}
    changed.columns["size"] += 2.5
    assert [effect.cause for effect in compare_rows(profile, reference, changed).effects] == ["column size"]


def test_new_category_is_named():
    profile, rows = build_order_profile(), draw_orders(640, 4)
    rows.columns["colour"][::3] = "pink"
    verdict = run_rows(profile, extract_row_features(profile, rows))
    assert verdict.cause == "categories of colour" and "pink" not in verdict.why
    assert any(effect.detail == "other colour higher" for effect in verdict.effects)


def test_rows_of_a_known_condition_are_no_drift():
    exports = draw_orders(600, 21, shift=3.0)
    profile = build_table_profile(draw_orders(1000, 1), ("small", "large"), conditions=[("exports", exports)])
    clean, known = (extract_row_features(profile, draw_orders(320, seed, shift=3.0 * (seed % 2))) for seed in (22, 23))
    verdict = run_rows(profile, clean, known)
    assert verdict.state == "ok" and verdict.conditions["exports"] == pytest.approx(0.5, abs=0.1)
    unknown = run_rows(profile, clean, extract_row_features(profile, draw_orders(320, 24, shift=-3.0)))
    assert unknown.state == "drift" and unknown.cause == "column size"


def test_changed_answers_alone_are_named():
    profile = build_order_profile()
    rows = draw_orders(2000, 5)
    is_large = rows.targets == 1
    columns = {name: values[is_large] for name, values in rows.columns.items()}
    large = extract_row_features(profile, AnsweredRows(columns, rows.answers[is_large]))
    verdict = run_rows(profile, extract_row_features(profile, draw_orders(320, 6)), large)
    assert verdict.state == "drift" and verdict.cause == "answer"


def draw_texts(count, seed, words=("the", "cat", "sat", "on", "a", "mat"), nats=1.2, length=12):
    """Draw texts of words, with a loss and two features of each."""
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.choice(words, max(int(rng.normal(length, 2)), 1))) for _ in range(count)]
    return AnsweredTexts(texts, rng.normal(nats, 0.2, count), rng.normal(size=(count, 2)))


@cache
def build_sentence_profile() -> ReferenceProfile:
    return build_text_profile(draw_texts(600, 1))


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"nats": 1.4}, "language or topic"),
        ({"length": 18}, "length"),
        ({"words": ("le", "chât", "dort")}, "characters"),
    ],
)
def test_change_of_texts_is_named(change, cause):
    profile = build_sentence_profile()
    clean = extract_text_features(profile, draw_texts(320, 2))
    verdict = run_rows(profile, clean, extract_text_features(profile, draw_texts(320, 3, **change)))
    assert verdict.state == "drift" and verdict.cause == cause
    assert run_rows(profile, clean).why == "320 texts look like the reference"


def test_texts_of_a_stored_profile_are_described_alike():
    profile = build_sentence_profile()
    arrays = reference_to_arrays(profile)
    stored = profile_from_arrays(arrays, profile.class_names, int(arrays["width"]))
    assert stored.encoder == profile.encoder and stored.schema.kind == "text"
    with raises_code("reference-unusable", "texts"):
        extract_row_features(stored, AnsweredRows({"x": np.zeros(3)}, np.zeros(3)))


def test_texts_are_compared_with_the_reference_at_once():
    profile, reference = build_sentence_profile(), draw_texts(600, 1)
    assert compare_texts(profile, reference, draw_texts(200, 8)).state == "ok"
    assert compare_texts(profile, reference, draw_texts(200, 9, nats=1.4)).cause == "language or topic"
    few = compare_texts(profile, reference, draw_texts(5, 9))
    assert few.state == "unknown" and few.why.startswith("5 texts")
