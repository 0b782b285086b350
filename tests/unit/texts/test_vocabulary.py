import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from equipoise.texts.vocabulary import build_vocabulary


def test_tokens_are_places_among_the_sorted_characters():
    vocabulary = build_vocabulary("banana\n")
    assert vocabulary.characters == "\nabn" and len(vocabulary) == 5
    assert vocabulary.encode("ban\n").tolist() == [2, 1, 3, 0]


def test_every_unknown_character_has_the_last_token():
    vocabulary = build_vocabulary("bd")
    assert vocabulary.encode("abcde\U0001f600").tolist() == [2, 0, 2, 1, 2, 2]


@given(st.text(min_size=1), st.text())
def test_tokens_agree_with_a_dictionary(training_text, text):
    vocabulary = build_vocabulary(training_text)
    places = {character: place for place, character in enumerate(sorted(set(training_text)))}
    tokens = vocabulary.encode(text)
    assert tokens.dtype == np.int64
    assert tokens.tolist() == [places.get(character, len(places)) for character in text]
