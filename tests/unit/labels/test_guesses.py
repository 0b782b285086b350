"""Guesses of a model as its service or a file gives them."""

import json

import pytest

from equipoise.labels.guesses import parse_guess, read_guesses
from tests.support.errors import raises_code


@pytest.mark.parametrize(
    ("contents", "score"),
    [
        ({"label": "a", "score": 0.5, "scores": {"a": 0.9}}, 0.5),
        ({"label": "a", "scores": {"a": 0.75, "b": 0.25}}, 0.75),
        ({"label": "a", "scores": [0.75, 0.25]}, 1.0),
        ({"label": "a", "scores": {"b": 0.25}}, 1.0),
        ({"label": "a"}, 1.0),
    ],
)
def test_a_class_has_its_score_or_counts_as_certain(contents, score):
    assert parse_guess(contents, "x").scores == (score,)


@pytest.mark.parametrize("contents", [{"label": "a", "score": 2}, {"label": "a", "score": "x"}, {"label": 3}, [], None])
def test_what_is_no_guess_is_refused_with_its_source(contents):
    with raises_code("labels-invalid", "the guess for x"):
        parse_guess(contents, "the guess for x")


def test_name_of_a_guessed_picture_may_be_a_number(tmp_path):
    images = [{"id": 1, "file_name": 5}]
    (tmp_path / "a.json").write_text(json.dumps({"images": images, "annotations": [], "categories": []}))
    assert list(read_guesses(tmp_path / "a.json")) == ["5"]
