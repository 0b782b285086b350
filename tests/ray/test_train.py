"""jobs.train as users start it, on a real cluster and with real failures."""

import json
import os
import re
import signal
import sys

import pytest
import torch
from safetensors.torch import load_file

from equipoise.runs.misclassified import MAX_MISCLASSIFIED, read_misclassified
from equipoise.runs.record import Record
from equipoise.training.loop import Training
from jobs.cluster.processes import wait_until
from jobs.train import main
from tests.support.gloo import run_with_gloo
from tests.support.ray_cluster import PATIENCE_SECONDS, list_descendants
from tests.support.run_observer import print_duration, print_repeated_laps, read_laps

LONG_RUN_FLAGS = ["--workers", 2, "--batch-size", 16, "--max-examples", 40_000, "--target", 2.0, "--eval-every", 2000]
"""options of a run that trains for several seconds, long enough to be disturbed"""


def read_record(out):
    return Record.from_json(json.loads((out / "record.json").read_text()))


def load_weights(out):
    return load_file(out / "model.safetensors")


def are_weights_equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def has_checkpoint(out):
    """Return whether a checkpoint is complete."""
    return (out / "checkpoints" / "checkpoint_manager_snapshot.json").exists()


@pytest.fixture(scope="module")
def undisturbed_run(cluster, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    result = cluster.run(*cluster.build_train_command(*LONG_RUN_FLAGS, "--out", out))
    assert result.returncode == 0, result.stderr
    return out


def test_run_without_a_target_trains_its_examples(cluster, tmp_path):
    workload = "tests.support.workloads:without_target"
    flags = ("--workload", workload, "--max-examples", "1280", "--keep", "best", "--out", str(tmp_path / "run"))
    result = cluster.run(sys.executable, "-m", "jobs.train", *flags)
    assert result.returncode == 0, result.stderr
    record = read_record(tmp_path / "run")
    assert (record.status, record.target, record.laps[-1].seen) == ("max_examples", None, 1280)
    assert re.search(r"^  target     none; the best metric on validation was 0\.\d+$", result.stdout, re.MULTILINE)
    assert "without a target" in (tmp_path / "run" / "run.html").read_text()


def test_finished_run_has_record_and_model_and_is_not_repeated(cluster, tmp_path):
    out = tmp_path / "runs" / "x"
    command = cluster.build_train_command("--workers", 2, "--lr", 0.05, "--seed", 0, "--target", 0.9, "--out", out)
    result = cluster.run(*command)
    assert result.returncode == 0, result.stderr
    record = read_record(out)
    assert record.reached and record.status == "reached_target"
    assert record.laps[-1].metric >= 0.9 and record.laps[-1].workers == 2
    assert record.laps[-2].seen < record.examples_to_target <= record.laps[-1].seen
    assert record.test > 0.8
    correct, images = (sum(getattr(count, name) for count in record.test_classes) for name in ("correct", "images"))
    assert correct / images == pytest.approx(record.test) and len(record.test_classes) == 10
    assert len(read_misclassified(out)) == min(images - correct, MAX_MISCLASSIFIED)
    assert record.machine.cores >= 1
    assert (
        len([line for line in result.stdout.splitlines() if line.startswith("step ")])
        == len(record.laps)
        == len(read_laps(out))
    )
    assert all(value.isfinite().all() for value in load_weights(out).values())
    assert sorted(path.name for path in out.iterdir()) == [
        ".lock",
        "checkpoints",
        "laps.jsonl",
        "misclassified.json",
        "model.safetensors",
        "record.json",
        "run.html",
        "trial.json",
    ]
    before = (out / "record.json").read_bytes()
    repeated = cluster.run(*command)
    assert repeated.returncode == 0
    assert "has ended: nothing to do" in repeated.stdout
    assert (out / "record.json").read_bytes() == before
    contradicting = cluster.run(*command, "--lr", "0.1")
    assert contradicting.returncode == 2
    assert "lr is 0.05, requested 0.1" in contradicting.stderr


def list_train_worker_pids(cluster):
    return [
        pid for pid, command in list_descendants(cluster.head_pid).items() if command.startswith("ray::RayTrainWorker")
    ]


def test_killed_worker_does_not_change_the_weights(cluster, undisturbed_run, tmp_path, capsys):
    out = tmp_path / "run"
    process = cluster.start(*cluster.build_train_command(*LONG_RUN_FLAGS, "--out", out))
    wait_until(lambda: has_checkpoint(out) or process.poll() is not None, PATIENCE_SECONDS, "a checkpoint")
    victims = list_train_worker_pids(cluster)
    assert len(victims) == 2, process.communicate()
    os.kill(victims[1], signal.SIGKILL)
    before = read_laps(out)
    with print_duration("worker killed: next lap", capsys):
        wait_until(lambda: process.poll() is not None or len(read_laps(out)) > len(before), PATIENCE_SECONDS, "a lap")
    _, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, stderr
    assert victims[1] not in list_descendants(cluster.head_pid)
    print_repeated_laps(before, read_laps(out), capsys)
    assert are_weights_equal(load_weights(out), load_weights(undisturbed_run))
    assert [lap.loss for lap in read_record(out).laps] == [lap.loss for lap in read_record(undisturbed_run).laps]


@pytest.mark.slow
@pytest.mark.parametrize("all_reduce", [pytest.param("sharded-root", marks=pytest.mark.thorough), "auto"])
def test_killed_worker_does_not_change_how_gradients_are_summed(cluster, undisturbed_run, tmp_path, all_reduce):
    out = tmp_path / "run"
    process = cluster.start(*cluster.build_train_command(*LONG_RUN_FLAGS, "--all-reduce", all_reduce, "--out", out))
    wait_until(lambda: has_checkpoint(out) or process.poll() is not None, PATIENCE_SECONDS, "a checkpoint")
    victims = list_train_worker_pids(cluster)
    assert len(victims) == 2, process.communicate()
    os.kill(victims[1], signal.SIGKILL)
    stdout, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, stderr
    laps = read_record(out).laps
    assert len({lap.all_reduce for lap in laps}) == 1 and all(lap.sent_bytes and lap.rounds for lap in laps)
    assert all_reduce == "auto" or laps[0].all_reduce == (all_reduce,)
    # two numbers have the same sum by every algorithm, so the weights are those of the default
    assert are_weights_equal(load_weights(out), load_weights(undisturbed_run))
    assert [lap.loss for lap in laps] == [lap.loss for lap in read_record(undisturbed_run).laps]
    assert stdout.count("gradients are summed by") == (set(laps[0].all_reduce) != {"backend"})
    refused = cluster.run(*cluster.build_train_command(*LONG_RUN_FLAGS, "--all-reduce", "tree", "--out", out))
    assert refused.returncode == 2
    assert f"all_reduce is {all_reduce}, requested tree" in refused.stderr


@pytest.mark.slow
def test_killed_and_resubmitted_job_does_not_change_the_weights(cluster, undisturbed_run, tmp_path, capsys):
    out = tmp_path / "run"
    process = cluster.start(*cluster.build_train_command(*LONG_RUN_FLAGS, "--out", out))
    wait_until(lambda: has_checkpoint(out) or process.poll() is not None, PATIENCE_SECONDS, "a checkpoint")
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (out / "record.json").exists()
    with print_duration("driver killed: its workers gone", capsys):
        wait_until(lambda: not list_train_worker_pids(cluster))
    before = read_laps(out)
    resumed = cluster.start(*cluster.build_train_command(*LONG_RUN_FLAGS, "--out", out))
    with print_duration("the same command: next lap", capsys):
        wait_until(lambda: resumed.poll() is not None or len(read_laps(out)) > len(before), PATIENCE_SECONDS, "a lap")
    _, stderr = resumed.communicate(timeout=PATIENCE_SECONDS)
    assert resumed.returncode == 0, stderr
    print_repeated_laps(before, read_laps(out), capsys)
    assert are_weights_equal(load_weights(out), load_weights(undisturbed_run))


def test_sigterm_leaves_a_checkpoint_and_tells_how_to_resume(cluster, tmp_path):
    out = tmp_path / "run"
    process = cluster.start(*cluster.build_train_command(*LONG_RUN_FLAGS, "--out", out))
    wait_until(lambda: len(read_laps(out)) >= 2 or process.poll() is not None, PATIENCE_SECONDS, "laps")
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 143, stderr
    assert "the same command resumes" in stdout
    assert has_checkpoint(out)
    assert not (out / "record.json").exists()
    assert not (out / "stop").exists()


def test_run_that_misses_its_target_has_status_max_examples(undisturbed_run):
    contents = json.loads((undisturbed_run / "record.json").read_text())
    assert (contents["status"], contents["examples_to_target"]) == ("max_examples", None)


def test_diverging_loss_gives_a_failed_record_and_no_model(cluster, tmp_path):
    out = tmp_path / "run"
    result = cluster.run(*cluster.build_train_command("--lr", 1e6, "--out", out))
    assert result.returncode == 1
    assert read_record(out).failed and read_record(out).reason.startswith("the loss was nan at step")
    assert not (out / "model.safetensors").exists()


def train_kept_weights(config):
    """Train in this process and return the weights that are kept and their test metric."""
    training = Training(config)
    for _ in training.laps():
        pass
    training.load_kept_weights()
    return training.model.state_dict(), training.evaluate(training.workload.test)


def test_run_that_stops_early_leaves_its_best_weights_and_is_tracked(cluster, tmp_path):
    out = tmp_path / "run"  # the metric is best at the 7th evaluation
    flags = ["--lr", 0.2, "--precision", "fp64", "--target", 2.0, "--keep", "best", "--patience", 3]
    result = cluster.run(*cluster.build_train_command(*flags, "--track", "tensorboard", "--out", out))
    assert result.returncode == 0, result.stderr
    record = read_record(out)
    assert record.status == "stopped_early" and len(record.laps) == 10
    assert "kept       weights after 1,888 examples" in result.stdout
    [(weights, test)] = run_with_gloo(1, tmp_path, train_kept_weights, record.config)
    assert are_weights_equal(load_weights(out), weights)
    assert record.test == test
    assert list((out / "tensorboard").glob("events.out.tfevents.*"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--workers", 3], "cannot run 3 workers: the cluster holds at most 2 slots"),
        (["--workers", "3:4"], "cannot run 3 workers: the cluster holds at most 2 slots"),
        (["--threads", 8], "cannot run 1 worker: the cluster holds at most 0 slots of 8 CPU"),
    ],
)
def test_more_workers_than_the_cluster_can_hold_are_refused_at_once(cluster, tmp_path, arguments, sentence):
    out = tmp_path / "run"
    result = cluster.run(*cluster.build_train_command("--out", out, *arguments))
    assert result.returncode == 2
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert not out.exists()


def run_refused_command(monkeypatch, capsys, out, *flags):
    """Return exit status and stderr of a training command that is refused before it needs a cluster."""
    arguments = ["train", "--workload", "digits", "--out", str(out), *map(str, flags)]
    monkeypatch.setattr(sys, "argv", arguments)
    try:
        status = main()
    except SystemExit as error:
        status = error.code
    return status, " ".join(capsys.readouterr().err.replace("│", " ").replace("|", " ").split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--workload", "digit"], "no workload 'digit'; choose one of: boxes, cifar10, digits"),
        (["--batch-size", 4096], "holds 1078 examples; choose a smaller --batch-size"),
        (["--model", "resnet19"], "no model 'resnet19'"),
        (["--workload", "folder", "--data", "nowhere"], "--data nowhere is not a folder"),
        (["--workers", 0], "must be at least 1"),
        (["--workers", "4:2"], "the first number of a range the smaller one, got 4:2"),
        (["--workers", "two"], "two"),
        (
            ["--workers", 3, "--all-reduce", "doubling"],
            "cannot sum over 3 workers by doubling: it needs 2, 4, 8, ... workers",
        ),
        (["--batch-size", -1], "--batch-size must be a finite number of at least 1, got -1"),
        (["--lr", "nan"], "--lr must be a number from 1e-12 to 1e+06, got nan"),
        (["--bach", 32], "--bach"),
    ],
)
def test_invalid_options_are_refused_with_one_sentence(tmp_path, monkeypatch, capsys, arguments, sentence):
    status, stderr = run_refused_command(monkeypatch, capsys, tmp_path / "run", *arguments)
    assert status == 2
    assert sentence in stderr
    assert not (tmp_path / "run").exists()


def test_unwritable_output_folder_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "run"
    assert run_refused_command(monkeypatch, capsys, out) == (
        2,
        f"error: cannot write to {out}: {tmp_path}/file is a file, not a folder [path-kind]",
    )
