"""Drift of texts to a language model of plays: other languages and characters are named, texts of the play are not."""

from functools import cache

import numpy as np
import pytest

from equipoise.drift.diagnosis.stream_verdict import compute_stream_verdict
from equipoise.texts.vocabulary import build_vocabulary
from equipoise.workloads.text.corpus import load_shakespeare
from tests.support.foreign_texts import FRENCH, GERMAN, draw_windows, spell_in_ascii
from tests.support.watched_texts import WINDOW_LENGTH, WatchedLanguageModel, cut_play, fit_bigrams

pytestmark = pytest.mark.slow
RUN_LENGTH_TEXTS = 100_000.0
FIRST_TEXTS = 64  # observed before the first verdict


@cache
def build_watched_model() -> WatchedLanguageModel:
    corpus = load_shakespeare()
    vocabulary = build_vocabulary(corpus.train)
    return WatchedLanguageModel.build(
        fit_bigrams(corpus.train[:300_000], vocabulary), vocabulary, cut_play(corpus.reference)
    )


def watch_texts(text, count=640, length=WINDOW_LENGTH, clean=FIRST_TEXTS):
    """Return the verdict on texts that follow some of the reference play, and how many of them the alarm took."""
    usual = draw_windows(load_shakespeare().reference, clean, WINDOW_LENGTH, 1)
    detector, delay = build_watched_model().watch(usual, draw_windows(text, count, length, 2), RUN_LENGTH_TEXTS)
    return compute_stream_verdict(detector), delay


@pytest.mark.parametrize("text", [GERMAN, FRENCH], ids=["German", "French"])
def test_new_characters_and_nats_of_another_language_are_both_named(text):
    verdict, delay = watch_texts(" ".join(text.split()))
    assert 0 < delay <= 64 and {effect.cause for effect in verdict.effects} == {"characters", "language or topic"}
    shares = [effect.value for effect in verdict.effects if effect.unit == "of the texts"]
    assert len(shares) == 1 and shares[0] > 0.4


@pytest.mark.parametrize("text", [GERMAN, FRENCH], ids=["German", "French"])
def test_another_language_in_the_same_characters_is_named(text):
    verdict, delay = watch_texts(spell_in_ascii(" ".join(text.split())))
    assert 0 < delay <= 160 and verdict.cause == "language or topic"
    assert verdict.effects[0].unit == "nats" and verdict.effects[0].low > 0


def test_upper_case_is_named_by_its_rare_characters_or_its_nats():
    verdict, delay = watch_texts(load_shakespeare().reference.upper())
    assert 0 < delay <= 64
    assert {effect.cause for effect in verdict.effects} == {"characters", "language or topic"}


@pytest.mark.parametrize("length", [8, 32, WINDOW_LENGTH])
def test_texts_of_the_play_are_no_drift_whatever_their_length(length):
    verdict, delay = watch_texts(load_shakespeare().reference, 1280, length)
    assert delay is None and verdict.state == "ok"


def test_texts_of_several_lengths_are_answered_as_by_themselves():
    watched, texts = build_watched_model(), ["To be", "or not to be", "that is"]
    sums = watched.sum_steps(texts, 1)
    for text, row in zip(texts, sums, strict=True):
        np.testing.assert_array_equal(row, watched.sum_steps([text], 1)[0])
