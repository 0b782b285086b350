"""Examples of a bundle as its profile compares them: answers of a table's model, windows of a language model."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from equipoise.drift.charts.cell_statistics import ImageFeatures, fit_class_statistics
from equipoise.drift.features.table_stats import fit_table_encoder
from equipoise.drift.profiling.bundle_profile import (
    collect_answered_rows,
    collect_answered_windows,
    find_text_of_code_0,
)
from equipoise.drift.profiling.row_profile import concat_answered_texts
from equipoise.tables.watched_columns import UNKNOWN_TEXT
from equipoise.texts.vocabulary import Vocabulary

VOCABULARY = Vocabulary("abc")


def test_logits_are_divided_by_the_temperature_and_numbers_are_not():
    outputs, features = torch.tensor([[1.0, 3.0]]), torch.zeros(1, 2)
    assert collect_answered_rows({}, outputs, features, 2.0).answers.tolist() == [[0.5, 1.5]]
    assert collect_answered_rows({}, outputs[0], features, 1.0).answers.tolist() == [1.0, 3.0]


def test_windows_have_the_loss_of_each_character_after_the_first():
    windows = torch.tensor([[0, 1, 2, 3], [2, 2, 0, 1]])
    logits = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0))
    texts = collect_answered_windows(VOCABULARY, windows, logits)
    assert texts.texts == ["abc\N{REPLACEMENT CHARACTER}", "ccab"]
    expected = F.cross_entropy(logits[:, :-1].transpose(1, 2), windows[:, 1:], reduction="none")
    np.testing.assert_allclose(texts.token_nats, expected.numpy(), rtol=1e-5)
    np.testing.assert_allclose(texts.nats_per_token, expected.mean(1).numpy(), rtol=1e-5)
    np.testing.assert_allclose(texts.features, torch.softmax(logits, 2).mean(1).numpy(), rtol=1e-5)


def test_text_of_one_character_joins_longer_ones():
    parts = [
        collect_answered_windows(VOCABULARY, torch.zeros(1, length, dtype=torch.int64), torch.zeros(1, length, 4), text)
        for length, text in ((1, "ä"), (3, "aaa"))
    ]
    texts = concat_answered_texts(parts)
    assert texts.texts == ["ä", "aaa"] and texts.token_nats is None
    assert texts.nats_per_token == pytest.approx([0, np.log(4)])
    assert concat_answered_texts([parts[1], parts[1]]).token_nats.shape == (2, 2)


@pytest.mark.parametrize(("missing", "other", "expected"), [(30, 5, ""), (5, 30, UNKNOWN_TEXT), (0, 0, "")])
def test_code_0_stands_for_what_is_more_frequent_in_the_reference(missing, other, expected):
    cities = np.array([None] * missing + [f"village {index}" for index in range(other)] + ["Bern"] * 200, dtype=object)
    columns = {"size": np.arange(float(len(cities))), "city": cities}
    encoder = fit_table_encoder(columns, columns["size"])
    features = ImageFeatures(
        encoder.statistics(columns, columns["size"]), encoder.classes(columns["size"]), np.zeros((len(cities), 2), "f4")
    )
    usual = fit_class_statistics(features, 4)
    profile = SimpleNamespace(encoder=encoder, baseline=SimpleNamespace(usual=usual))
    assert find_text_of_code_0(profile, "city") == expected
