import pytest

from equipoise.workloads.text.corpus import PLAYS, load_shakespeare
from tests.support.witten_bell import witten_bell_nats


@pytest.fixture(scope="module")
def corpus():
    return load_shakespeare()


def test_splits_are_whole_plays_of_plain_ascii(corpus):
    lengths = {"train": 1_107_874, "validation": 173_942, "reference": 98_439, "test": 103_427}
    assert {split: len(text) for split, text in vars(corpus).items()} == lengths
    text = "".join(vars(corpus).values())
    assert text.isascii() and text.replace("\n", "").isprintable()
    assert corpus.train.startswith("AS YOU LIKE IT\n") and "TWELFTH NIGHT; OR, WHAT YOU WILL\n" in corpus.train
    assert corpus.validation.startswith("HAMLET, PRINCE OF DENMARK\n")
    assert corpus.reference.startswith("THE TEMPEST\n")
    assert corpus.test.startswith("MACBETH\n")


def test_no_play_is_in_two_splits(corpus):
    plays = [play for names in PLAYS.values() for play in names]
    assert len(plays) == len(set(plays)) == 11
    assert corpus.validation[1000:1200] not in corpus.train


def test_texts_are_as_hard_as_english_by_counts_of_characters(corpus):
    nats = witten_bell_nats(corpus.train, corpus.validation, max_order=2, alphabet_size=79)
    assert nats == pytest.approx([3.25, 2.50, 2.05], abs=0.005)


def test_counts_of_characters_by_hand():
    # order 0 on "aab": P(b) = (1 + 2 / 2) / (3 + 2) = 2/5; order 1 after "a" ("a" and "b" followed): (1 + 2 * 2/5) / 4
    order_0, order_1 = witten_bell_nats("aab", "ab", max_order=1, alphabet_size=2)
    assert order_0 == pytest.approx(0.916291, abs=1e-6)  # -ln 0.4
    assert order_1 == pytest.approx(0.798508, abs=1e-6)  # -ln 0.45
