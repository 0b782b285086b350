"""The workload text as a whole, on Shakespeare and on a user's own text."""

from dataclasses import replace

import pytest
import torch

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from equipoise.workloads import Unit, load_workload
from equipoise.workloads.text.corpus import load_shakespeare
from tests.support.errors import raises_code
from tests.support.witten_bell import witten_bell_nats

LEAK_NATS = 1.2  # what no model of this size reaches on a play it has not seen


@pytest.fixture(scope="module")
def workload():
    return load_workload(TrainConfig(workload="text"))


@pytest.fixture(scope="module")
def counted_nats():
    """Nats per character of Hamlet by counts of single characters, and of pairs."""
    corpus = load_shakespeare()
    return witten_bell_nats(corpus.train, corpus.validation, max_order=1, alphabet_size=79)


def load_own_text(path, **options):
    return load_workload(TrainConfig(workload="text", data=str(path), batch_size=1, **options))


def test_plays_are_cut_into_windows(workload):
    splits = workload.train, workload.validation, workload.reference, workload.test
    assert [len(split) for split in splits] == [17_310, 2_717, 1_538, 1_616]
    for split in splits:
        assert split.inputs.dtype == split.targets.dtype == torch.int64
        assert split.inputs.shape == split.targets.shape == (len(split), 64)
        assert torch.equal(split.inputs[:, 1:], split.targets[:, :-1])
        assert set(split.inputs.unique().tolist()) <= set(range(79))


def test_lower_nats_are_better_and_examples_are_counted_in_tokens(workload):
    assert workload.lower_is_better and workload.target == 2.4
    assert workload.unit == Unit("tokens", per_example=64)
    config = TrainConfig(workload="text").with_defaults(workload.defaults)
    assert (config.optimizer, config.lr, config.clip_norm, config.decay_on) == ("adamw", 3e-3, 1.0, "matrices")
    assert workload.warmup_examples(config) == 1000


def test_own_text_gives_name_and_vocabulary(tmp_path):
    (tmp_path / "my book.txt").write_text("abc" * 1000 + "d" * 300, encoding="utf-8")
    workload = load_own_text(tmp_path / "my book.txt")
    assert workload.name == "my-book.txt"
    assert workload.model()(workload.test.inputs[:1]).shape == (1, 64, 4)  # a, b, c and the token of any other
    assert workload.test.inputs[-1].unique().tolist() == [3]  # d is in no training text
    assert [len(split) for split in (workload.train, workload.validation, workload.reference)] == [30, 7, 5]


def test_default_folder_holds_a_corpus_only_where_it_has_text_files(tmp_path):
    assert load_own_text(tmp_path / "data").name == "text"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "images.gz").write_bytes(b"\x1f\x8b")
    assert load_own_text(tmp_path / "data").name == "text"
    (tmp_path / "data" / "book.txt").write_text("abc" * 1000)
    workload = load_own_text(tmp_path / "data")
    assert workload.name == "data" and workload.train.inputs.max() == 2


def test_text_behind_a_url_is_named_after_the_url(tmp_path, monkeypatch):
    monkeypatch.setenv("EQUIPOISE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "book.txt").write_text("abc" * 1000)
    workload = load_workload(TrainConfig(workload="text", data=f"file://{tmp_path}/data", batch_size=1))
    assert workload.name == "data" and len(workload.train) == 28
    (tmp_path / "data" / "book.txt").rename(tmp_path / "data" / "book.gz")
    with raises_code("dataset-invalid"):  # not Shakespeare, as with a path
        load_workload(TrainConfig(workload="text", data=f"file://{tmp_path}/data", batch_size=1))


def test_text_too_short_for_its_splits_is_refused(tmp_path):
    (tmp_path / "note.txt").write_text("x" * 640)
    with raises_code("dataset-invalid", "note.txt", "reference", 65):
        load_own_text(tmp_path / "note.txt")
    (tmp_path / "note.txt").write_text("x" * 660)
    assert len(load_own_text(tmp_path / "note.txt").reference) == 1


def test_batch_of_two_is_the_mean_of_its_windows(workload):
    model = workload.model().double()
    inputs, targets = workload.validation.read_examples([3, 70])
    with torch.no_grad():
        scores = model(inputs)
    halves = [float(workload.loss(scores[i : i + 1], targets[i : i + 1])) for i in range(2)]
    assert float(workload.loss(scores, targets)) == pytest.approx(sum(halves) / 2, rel=1e-12)
    assert workload.metric(scores, targets).tolist() == pytest.approx(halves, rel=1e-12)


def test_model_learns_more_than_how_frequent_characters_are(workload, counted_nats):
    short = replace(workload, validation=workload.validation.take_first(400))
    training = Training(TrainConfig(workload="text", batch_size=8, max_examples=1600, eval_every=1600), short)
    [*_, lap] = training.laps()
    assert LEAK_NATS < lap.metric < counted_nats[0]


@pytest.mark.slow
@pytest.mark.thorough
def test_model_learns_more_than_pairs_of_characters_tell(workload, counted_nats):
    training = Training(TrainConfig(workload="text", batch_size=8, max_examples=10_000, target=0.0), workload)
    metrics = [lap.metric for lap in training.laps() if lap.metric is not None]
    assert LEAK_NATS < metrics[-1] < counted_nats[1]
