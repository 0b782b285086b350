"""Windows of a language model as reference: texts of any length are compared without a bias."""

import numpy as np
import pytest

from equipoise.drift.features.text_stats import TEXT_SCHEMA, WINDOW_SCHEMA, TextEncoder, fit_window_encoder
from equipoise.drift.features.text_windows import WindowReference

LENGTH = 16
USUAL = WindowReference(tuple(np.linspace(3, 2, LENGTH - 1).tolist()), 0.05)


def draw_windows(count, seed=0):
    """Draw windows of characters, 0.8 % of which are rare, with losses that fall along the window."""
    rng = np.random.default_rng(seed)
    characters = np.where(rng.random((count, LENGTH)) < 0.008, "q", rng.choice([*"abc"], (count, LENGTH)))
    nats = np.linspace(3, 2, LENGTH - 1) + rng.normal(0, 0.5, (count, LENGTH - 1))
    return ["".join(row) for row in characters], nats


def test_whole_windows_are_described_as_they_are():
    lengths = np.full(3, LENGTH)
    np.testing.assert_allclose(USUAL.scale_nats([1.0, 2.5, 4.0], lengths), [1.0, 2.5, 4.0])
    np.testing.assert_allclose(USUAL.scale_rare_shares(np.array([0, 0.05, 0.5]), lengths), [0, 0.05, 0.5])


def test_short_text_is_compared_after_as_many_characters_and_counts_less():
    (nats,) = USUAL.scale_nats([2.9], np.array([4]))
    usual_after_three = np.mean(USUAL.nats_by_context[:3])
    assert nats == pytest.approx(2.5 + np.sqrt(3 / 15) * (2.9 - usual_after_three))
    assert USUAL.scale_nats([0.0], np.array([1])) == pytest.approx([2.5])  # its nats are those of no character
    assert USUAL.scale_rare_shares(np.array([1.0]), np.array([1])) == pytest.approx([0.05 + 0.95 / 4])


@pytest.mark.parametrize("length", [1, 5, 15])
def test_texts_of_any_length_have_the_mean_and_the_spread_of_windows(length):
    texts, nats = draw_windows(8000)
    encoder = fit_window_encoder(texts, nats)
    windows = encoder.statistics(texts, nats.mean(1))
    means = nats[:, : length - 1].mean(1) if length > 1 else np.zeros(len(nats))
    short = encoder.statistics([text[:length] for text in texts], means)
    rare, loss = (WINDOW_SCHEMA.names.index(name) for name in ("rare characters", "nats per token"))
    for column in (rare, loss) if length > 1 else (rare,):
        deviation = windows[:, column].std()
        assert abs(short[:, column].mean() - windows[:, column].mean()) < 0.06 * deviation
        assert short[:, column].std() == pytest.approx(deviation, rel=0.2)


def test_stored_encoder_is_the_same():
    texts, nats = draw_windows(50)
    encoder = fit_window_encoder(texts, nats)
    assert TextEncoder.from_arrays(encoder.to_arrays()) == encoder and encoder.schema is WINDOW_SCHEMA


def test_texts_have_no_classes_and_so_no_accuracy():
    assert not TEXT_SCHEMA.has_accuracy and not WINDOW_SCHEMA.has_accuracy
