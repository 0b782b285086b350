"""jobs.train as a user starts it, on a real cluster, with real failures."""

import json
import os
import signal
import sys

import pytest
import torch
from safetensors.torch import load_file

from equipoise.runs.record import Record
from jobs.cluster.processes import wait_until
from jobs.train import main
from tests.support.ray_cluster import list_descendants
from tests.support.run_observer import print_duration, print_repeated_laps, read_laps

LONG = ["--workers", 2, "--batch-size", 16, "--max-examples", 40_000, "--target", 2.0, "--eval-every", 2000]
"""a run of several seconds of training, so that it can be disturbed"""


def record(out):
    return Record.from_json(json.loads((out / "record.json").read_text()))


def weights(out):
    return load_file(out / "model.safetensors")


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def saved(out):
    """Whether a checkpoint is complete."""
    return (out / "checkpoints" / "checkpoint_manager_snapshot.json").exists()


@pytest.fixture(scope="module")
def undisturbed(cluster, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    done = cluster.run(*cluster.train(*LONG, "--out", out))
    assert done.returncode == 0, done.stderr
    return out


# First: Ray keeps the slots of a job that was killed reserved for elastic runs for a minute or two.
def test_an_elastic_run_takes_the_workers_there_are_and_is_the_same_run(cluster, tmp_path):
    out = tmp_path / "run"
    few = ["--batch-size", 8, "--max-examples", 3200, "--target", 2.0, "--precision", "fp64"]
    done = cluster.run(*cluster.train(*few, "--workers", "1:4", "--out", out))
    assert done.returncode == 0, done.stderr
    assert {lap.workers for lap in record(out).laps} == {2}
    assert record(out).config.global_batch == 32
    alone = tmp_path / "alone"
    assert cluster.run(*cluster.train(*few, "--grad-accumulation", 4, "--out", alone)).returncode == 0
    one, other = weights(out), weights(alone)
    assert all(torch.allclose(one[name], other[name], rtol=1e-10, atol=1e-12) for name in one)


def test_a_run_leaves_its_record_and_its_model_and_the_same_command_says_so(cluster, tmp_path):
    out = tmp_path / "runs" / "x"
    asked = cluster.train("--workers", 2, "--lr", 0.05, "--seed", 0, "--target", 0.9, "--out", out)
    done = cluster.run(*asked)
    assert done.returncode == 0, done.stderr
    found = record(out)
    assert found.reached and found.status == "reached_target"
    assert found.laps[-1].metric >= 0.9 and found.laps[-1].workers == 2
    assert found.laps[-2].seen < found.examples_to_target <= found.laps[-1].seen
    assert found.test > 0.8
    assert found.machine["cores"] >= 1
    assert (
        len([text for text in done.stdout.splitlines() if text.startswith("step ")])
        == len(found.laps)
        == len(read_laps(out))
    )
    assert all(value.isfinite().all() for value in weights(out).values())
    assert sorted(p.name for p in out.iterdir()) == [
        ".lock",
        "checkpoints",
        "laps.jsonl",
        "model.safetensors",
        "record.json",
        "run.html",
        "trial.json",
    ]
    before = (out / "record.json").read_bytes()
    again = cluster.run(*asked)
    assert again.returncode == 0
    assert "has ended: nothing to do" in again.stdout
    assert (out / "record.json").read_bytes() == before
    other = cluster.run(*asked, "--lr", "0.1")
    assert other.returncode == 2
    assert "lr is 0.05, requested 0.1" in other.stderr


def workers_of(cluster):
    return [
        pid for pid, command in list_descendants(cluster.head_pid).items() if command.startswith("ray::RayTrainWorker")
    ]


def test_a_worker_killed_in_mid_run_changes_nothing(cluster, undisturbed, tmp_path, capsys):
    out = tmp_path / "run"
    running = cluster.start(*cluster.train(*LONG, "--out", out))
    wait_until(lambda: saved(out) or running.poll() is not None)
    victims = workers_of(cluster)
    assert len(victims) == 2, running.communicate()
    os.kill(victims[1], signal.SIGKILL)
    before = read_laps(out)
    with print_duration("worker killed: next lap", capsys):
        wait_until(lambda: running.poll() is not None or len(read_laps(out)) > len(before), 120, "a lap")
    _said, err = running.communicate(timeout=240)
    assert running.returncode == 0, err
    assert victims[1] not in list_descendants(cluster.head_pid)
    print_repeated_laps(before, read_laps(out), capsys)
    assert same(weights(out), weights(undisturbed))
    assert [lap.loss for lap in record(out).laps] == [lap.loss for lap in record(undisturbed).laps]


def test_a_job_killed_and_submitted_again_changes_nothing(cluster, undisturbed, tmp_path, capsys):
    out = tmp_path / "run"
    running = cluster.start(*cluster.train(*LONG, "--out", out))
    wait_until(lambda: saved(out) or running.poll() is not None)
    os.killpg(running.pid, signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    assert not (out / "record.json").exists()
    with print_duration("driver killed: its workers gone", capsys):
        wait_until(lambda: not workers_of(cluster))
    before = read_laps(out)
    again = cluster.start(*cluster.train(*LONG, "--out", out))
    with print_duration("the same command: next lap", capsys):
        wait_until(lambda: again.poll() is not None or len(read_laps(out)) > len(before), 120, "a lap")
    _, err = again.communicate(timeout=240)
    assert again.returncode == 0, err
    print_repeated_laps(before, read_laps(out), capsys)
    assert same(weights(out), weights(undisturbed))


def test_sigterm_leaves_a_checkpoint_and_says_what_to_do(cluster, tmp_path):
    out = tmp_path / "run"
    running = cluster.start(*cluster.train(*LONG, "--out", out))
    wait_until(lambda: len(read_laps(out)) >= 2 or running.poll() is not None)
    running.send_signal(signal.SIGTERM)
    said, err = running.communicate(timeout=60)
    assert running.returncode == 143, err
    assert "the same command resumes" in said
    assert saved(out)
    assert not (out / "record.json").exists()
    assert not (out / "stop").exists()


def test_a_target_never_reached_is_no_failure(undisturbed):
    facts = json.loads((undisturbed / "record.json").read_text())
    assert (facts["status"], facts["examples_to_target"]) == ("max_examples", None)


def test_a_loss_that_blows_up_is_a_failed_record_without_a_model(cluster, tmp_path):
    out = tmp_path / "run"
    done = cluster.run(*cluster.train("--lr", 1e6, "--out", out))
    assert done.returncode == 1
    assert record(out).failed and record(out).reason.startswith("the loss was nan at step")
    assert not (out / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--workers", 3], "cannot run 3 workers: the cluster holds at most 2 slots"),
        (["--workers", "3:4"], "cannot run 3 workers: the cluster holds at most 2 slots"),
        (["--threads", 8], "cannot run 1 worker: the cluster holds at most 0 slots of 8 CPU"),
    ],
)
def test_more_than_the_cluster_can_hold_is_refused_at_once(cluster, tmp_path, arguments, sentence):
    out = tmp_path / "run"
    done = cluster.run(*cluster.train("--out", out, *arguments), timeout=60)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert not out.exists()


def asked(monkeypatch, capsys, out, *arguments):
    """Exit status, and what was said, of a command that is refused before it needs a cluster."""
    words = ["train", "--workload", "digits", "--out", str(out), *map(str, arguments)]
    monkeypatch.setattr(sys, "argv", words)
    try:
        status = main()
    except SystemExit as end:
        status = end.code
    return status, " ".join(capsys.readouterr().err.replace("│", " ").replace("|", " ").split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--workload", "digit"], "no workload 'digit'; choose one of: cifar10, digits"),
        (["--batch-size", 4096], "holds 1078 examples; choose a smaller --batch-size"),
        (["--model", "resnet19"], "no model 'resnet19'"),
        (["--workload", "folder", "--data", "nowhere"], "--data nowhere is not a folder"),
        (["--workers", 0], "must be at least 1"),
        (["--workers", "4:2"], "the first number of a range the smaller one, got 4:2"),
        (["--workers", "two"], "two"),
        (["--batch-size", -1], "batch_size must be a finite number of at least 1, got -1"),
        (["--lr", "nan"], "lr must be a finite number of at least 0, got nan"),
        (["--bach", 32], "--bach"),
    ],
)
def test_what_makes_no_trial_is_one_sentence(tmp_path, monkeypatch, capsys, arguments, sentence):
    status, said = asked(monkeypatch, capsys, tmp_path / "run", *arguments)
    assert status == 2
    assert sentence in said
    assert not (tmp_path / "run").exists()


def test_a_place_that_cannot_be_written_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "run"
    assert asked(monkeypatch, capsys, out) == (
        2,
        f"error: cannot write to {out}: {tmp_path}/file is a file, not a folder",
    )
