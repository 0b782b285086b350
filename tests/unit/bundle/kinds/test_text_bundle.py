"""Bundles of language models say what comes next as the trained model does, and how likely a text is."""

import math

import numpy as np
import pytest
import torch

from equipoise.bundle.bundle import load_bundle
from equipoise.bundle.engines import ENGINES
from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from tests.support.bundles import publish_run, write_run_folder
from tests.support.errors import raises_code


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Trained model and its bundle, of a text file of a few kilobytes."""
    folder = tmp_path_factory.mktemp("text")
    rng = np.random.default_rng(0)
    words = ["to be", "or not", "the rest", "is silence", "\n"]
    (folder / "play.txt").write_text(" ".join(rng.choice(words, 4000)))
    training = Training(
        TrainConfig(workload="text", data=str(folder / "play.txt"), model="gpt:1x16", batch_size=16, max_examples=600)
    )
    for _ in training.laps():
        pass
    bundle = load_bundle(publish_run(write_run_folder(training, folder / "run"), folder / "bundle"))
    return training, bundle


def log_probabilities(training, bundle, text):
    """Return what the trained model says after a text, which is no longer than its window."""
    with torch.no_grad():
        logits = training.model.eval()(torch.from_numpy(bundle.vocabulary.encode(text))[None])
    return torch.log_softmax(logits[0, -1].double(), 0)


@pytest.mark.parametrize("text", ["t", "to b", "to be or not the rest is silence " * 4])
def test_next_characters_are_those_of_the_trained_model(published, text):
    training, bundle = published
    expected = log_probabilities(training, bundle, text[-bundle.window :])
    tokens = bundle.next_tokens(text, count=3).next_tokens
    characters = bundle.vocabulary.characters
    assert [token.character for token in tokens] == [characters[index] for index in expected.topk(3).indices]
    for token in tokens:
        assert token.nats == pytest.approx(-float(expected[characters.index(token.character)]), abs=1e-4)
        assert token.probability == pytest.approx(math.exp(-token.nats))


@pytest.mark.parametrize("length", [2, 30, 64, 65, 128, 150])
def test_nats_are_those_of_each_character_after_those_before_it_in_its_window(published, length):
    training, bundle = published
    text = ("the rest is silence\nor not " * 8)[:length]
    starts = [*range(0, max(1, length - 64), 64), max(0, length - 64)]
    nats = []
    for place in range(1, length):
        start = next(start for start in starts if start < place <= start + 64)
        probabilities = log_probabilities(training, bundle, text[start:place])
        nats.append(-float(probabilities[bundle.vocabulary.encode(text[place])[0]]))
    assert bundle.next_tokens(text).nats_per_token == pytest.approx(np.mean(nats), abs=1e-4)


def test_single_character_has_no_nats_and_unknown_characters_are_allowed(published):
    _, bundle = published
    assert bundle.next_tokens("t").nats_per_token is None
    assert bundle.next_tokens("Ωx").nats_per_token > 1
    assert len(bundle.next_tokens("to b").next_tokens) == 5
    everything = bundle.next_tokens("to b", count=1000).next_tokens
    assert len(everything) == len(bundle.vocabulary) and "\ufffd" in {token.character for token in everything}
    assert sum(token.probability for token in everything) == pytest.approx(1)


@pytest.mark.parametrize("text", ["", None, b"to be", "\ud800"])
def test_what_is_no_text_is_refused(published, text):
    with raises_code("text-invalid"):
        published[1].next_tokens(text)


def test_bundle_says_how_many_nats_the_test_split_has(published):
    training, bundle = published
    metrics, test = bundle.manifest.metrics, training.workload.test
    with torch.no_grad():
        rows = training.workload.metric(training.model.eval()(test.inputs), test.targets)
    assert metrics.nats_per_token == pytest.approx(float(rows.double().mean()), abs=1e-4)
    assert metrics.tokens == test.targets.numel() and metrics.nats_per_token < 2.5  # 2.6 without training
    assert f"{metrics.nats_per_token:.3f} nats per character" in (bundle.folder / "card.md").read_text()


def test_all_engines_agree_on_windows(published):
    _, bundle = published
    inputs, expected = bundle.load_kept_examples(8)
    for engine in ENGINES:
        outputs = load_bundle(bundle.folder, engine).run_engine(*inputs)
        np.testing.assert_allclose(outputs[0].numpy(), expected, atol=1e-4)
    assert bundle.manifest.outputs[0].shape == (-1, -1, len(bundle.vocabulary))
