"""jobs.replay: weights of an asynchronous run are computed again from its log, and what is no such run is refused."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from equipoise.config import TrainConfig
from equipoise.parameter_store.arrivals import ARRIVALS_FILE
from equipoise.training.loop import Training
from equipoise.training.store_steps.scheduled_steps import VirtualWorkers
from jobs import replay
from tests.support.bundles import train_short_run, write_run_folder


@pytest.fixture
def run_folder(tmp_path):
    """Train with three workers of unequal speed into a folder as jobs.train leaves it."""
    training = Training(
        TrainConfig(
            workload="digits",
            sync="async:2",
            workers=3,
            batch_size=16,
            max_examples=960,
            eval_every=480,
            precision="fp64",
        )
    )
    training.steps.schedule = VirtualWorkers(training.config, (1.0, 0.7, 3.1))
    for _ in training.laps():
        pass
    folder = write_run_folder(training, tmp_path / "run")
    (folder / ARRIVALS_FILE).write_text("".join(training.steps.arrival_lines))
    return folder


@pytest.fixture
def replay_folder(monkeypatch, capsys):
    """Return a function that runs the command, and returns its status and output."""

    def run(folder):
        monkeypatch.setattr("sys.argv", ["replay", "--run", str(folder)])
        status = replay.main()
        output = capsys.readouterr()
        return status, output.out + output.err

    return run


def test_replay_says_that_weights_are_equal(run_folder, replay_folder):
    status, text = replay_folder(run_folder)
    assert status == 0
    assert "in 2 laps, with gradients at most 2 updates old, gives the same weights to the last bit" in text
    assert text.count("\n") == 1


def test_replay_finds_weights_that_differ(run_folder, replay_folder):
    weights = load_file(run_folder / "model.safetensors")
    name = max(weights, key=lambda name: weights[name].numel())
    save_file(weights | {name: weights[name] * (1 + 1e-14)}, run_folder / "model.safetensors")
    status, text = replay_folder(run_folder)
    assert status == 0 and "gives the same weights but for rounding (largest relative difference" in text
    save_file(weights | {name: weights[name] * 1.1}, run_folder / "model.safetensors")
    status, text = replay_folder(run_folder)
    assert status == 1 and "gives other weights (largest relative difference of a tensor 9.1e-02)" in text
    save_file(weights | {name: torch.zeros(3)}, run_folder / "model.safetensors")
    status, text = replay_folder(run_folder)
    assert status == 1 and "gives other weights" in text


def test_log_with_another_version_of_a_push_gives_other_weights(run_folder, replay_folder):
    first, *lines = (run_folder / ARRIVALS_FILE).read_text().splitlines(keepends=True)
    lap = json.loads(first)
    push = next(pushes[0] for version, pushes in enumerate(lap["updates"]) if 0 < pushes[0][1] == version - 1)
    push[1] -= 1
    (run_folder / ARRIVALS_FILE).write_text("".join([json.dumps(lap) + "\n", *lines]))
    status, text = replay_folder(run_folder)
    assert status == 1 and "gives other weights" in text


def test_log_that_is_cut_or_damaged_is_refused(run_folder, replay_folder):
    log = run_folder / ARRIVALS_FILE
    whole = log.read_text()
    for content in (whole.splitlines(keepends=True)[0], whole[:-20], ""):
        log.write_text(content)
        status, text = replay_folder(run_folder)
        assert status == 2 and text.count("\n") == 1 and text.endswith("[run-damaged]\n")
    log.unlink()
    status, text = replay_folder(run_folder)
    assert status == 2 and "it has no arrivals.jsonl" in text and text.endswith("[run-unusable]\n")


def test_run_whose_workers_waited_for_each_other_is_refused(tmp_path, replay_folder):
    status, text = replay_folder(train_short_run(tmp_path / "run", examples=320))
    assert status == 2 and "it was trained with --sync step" in text and text.endswith("[run-unusable]\n")
    status, text = replay_folder(tmp_path / "other")
    assert status == 2 and "it has no record.json" in text and text.endswith("[run-unusable]\n")
