"""Commands on the folder of a finished run: what they do with damaged parts of it, and on a full disk."""

import json
import os
from dataclasses import asdict

import pytest

from equipoise.config import TrainConfig
from equipoise.runs.folder import read_record
from equipoise.runs.misclassified import MISCLASSIFIED_FILE
from equipoise.storage.atomic import write_json
from jobs import plan, publish, train
from tests.support.bundles import train_short_run
from tests.support.small_disk import mount_small_disk

GIVEN_OPTIONS = ("workload", "batch_size", "lr", "max_examples", "target", "seed")


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """Train a short run into a folder as jobs.train leaves it."""
    folder = train_short_run(tmp_path_factory.mktemp("finished") / "run", examples=320)
    config = read_record(folder / "record.json").config
    given = TrainConfig(**{name: getattr(config, name) for name in GIVEN_OPTIONS})
    write_json(folder / "trial.json", asdict(given))
    return folder


def build_train_arguments(config: TrainConfig):
    return [text for name in GIVEN_OPTIONS for text in (f"--{name.replace('_', '-')}", str(getattr(config, name)))]


def run_main(module, monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", [module.__name__, *map(str, arguments)])
    return module.main()


@pytest.mark.parametrize("content", ["{", "[3]", "\x1b[31m"])
def test_damaged_part_of_the_page_costs_the_page_alone(finished_run, monkeypatch, capsys, content):
    (finished_run / MISCLASSIFIED_FILE).write_text(content)
    arguments = build_train_arguments(read_record(finished_run / "record.json").config)
    assert run_main(train, monkeypatch, *arguments, "--out", finished_run) == 0
    output = capsys.readouterr()
    assert "nothing to do" in output.out and output.err.startswith("note: cannot write the page of the run: ")
    assert str(finished_run / MISCLASSIFIED_FILE) in output.err and output.err.count("\n") == 1


# with room for the program alone, and for its weights beside it but not for ONNX
@pytest.mark.parametrize("size", ["8k", "150k"])
def test_publication_on_a_full_disk_fails_in_one_sentence_and_leaves_nothing(
    finished_run, tmp_path, monkeypatch, capsys, size
):
    with mount_small_disk(tmp_path / "disk", size) as disk:
        out = disk / "bundle"
        assert run_main(publish, monkeypatch, "--run", finished_run, "--out", out, "--no-native", "--no-drift") == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith(f"error: cannot write {out}: ") and error.endswith("[disk-full]")
        assert list(disk.iterdir()) == []


@pytest.fixture
def measurements(tmp_path):
    """Write a table that `jobs.plan` takes."""
    rows = [f"{batch},0.1,0,{20_000 + batch},1" for batch in (32, 64, 128, 256)]
    (tmp_path / "statistical.csv").write_text("\n".join(["global_batch,lr,seed,examples,reached", *rows]) + "\n")
    return tmp_path / "statistical.csv"


def test_plan_is_not_written_into_a_pipe(measurements, tmp_path, monkeypatch, capsys):
    os.mkfifo(tmp_path / "pipe")
    assert run_main(plan, monkeypatch, "--statistical", measurements, "--out", tmp_path / "pipe") == 2
    assert capsys.readouterr().err.endswith("[path-kind]\n") and (tmp_path / "pipe").is_fifo()


def test_plan_on_a_full_disk_fails_in_one_sentence_that_names_its_file(measurements, tmp_path, monkeypatch, capsys):
    with mount_small_disk(tmp_path / "disk", "64k") as disk:
        assert run_main(plan, monkeypatch, "--statistical", measurements, "--out", disk / "plan") == 1
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and error.endswith("[disk-full]\n") and f"cannot write {disk}/plan/" in error
        for file in (disk / "plan").iterdir():
            json.loads(file.read_text())
