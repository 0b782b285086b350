"""Records as one table: of runs and trials, whatever else lies beside them."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from equipoise.runs.listing import READ_CHUNK_BYTES, RECORD_COLUMNS, list_records
from equipoise.storage.atomic import write_json
from jobs import records
from tests.unit.dashboards.test_experiments import WRONG
from tests.unit.dashboards.test_training_run import record

ROOT = Path(__file__).parents[3]


def put(path, **more):
    one = replace(record(), config=replace(record().config, **more))
    write_json(path, one.to_json())
    return one


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "runs"
    put(root / "one" / "record.json", lr=0.2, workers=2, grad_accumulation=4)
    put(root / "swept" / "trials" / "batch-32.json", seed=7)
    put(root / "swept" / "confirm" / "1x32" / "record.json", seed=1000)
    return root


def test_a_row_says_what_its_record_does(root):
    found = list_records(root)
    assert not found.damaged_files
    assert [Path(path).relative_to(root).as_posix() for path in found.rows.path] == [
        "one/record.json",
        "swept/confirm/1x32/record.json",
        "swept/trials/batch-32.json",
    ]
    one = put(root / "one" / "record.json", lr=0.2, workers=2, grad_accumulation=4)
    row = found.rows.iloc[0]
    trial = ["workload", "optimizer", "workers", "batch_size", "grad_accumulation", "global_batch", "lr", "seed"]
    assert {name: row[name] for name in trial} == {name: getattr(one.config, name) for name in trial}
    assert (row.status, row.target, row.test) == (one.status, one.target, one.test)
    assert row.seconds == pytest.approx(one.seconds) and row.examples == one.laps[-1].seen
    assert pd.isna(row.examples_to_target) and pd.isna(row.model)


def test_a_record_longer_than_one_read_and_numbers_beyond_a_table_are_told_apart(root):
    long = record()
    write_json(root / "long" / "record.json", replace(long, laps=list(long.laps) * 1000).to_json())
    assert (root / "long" / "record.json").stat().st_size > 2 * READ_CHUNK_BYTES
    put(root / "huge" / "record.json", seed=2**62, workers=2**40, batch_size=2**40)  # of the same types as all others
    found = list_records(root)
    assert len(found.rows) == 4 and str(root / "long" / "record.json") in set(found.rows.path)
    assert [Path(path).parent.name for path in found.damaged_files] == ["huge"]
    assert "invalid global_batch" in str(found.damaged_files)


def test_what_is_no_part_of_a_sweep_or_a_run_is_no_record(root):
    for name in ("tune/record.json", "checkpoints/record.json", ".hidden/record.json", "swept/system.json"):
        put(root / name)
    put(root / "swept" / "trials" / ".batch-64.json.123")
    (root / "linked").symlink_to(root / "one")
    assert len(list_records(root).rows) == 3


def test_a_record_that_never_began_and_one_of_fewer_options_are_records(tmp_path):
    write_json(tmp_path / "fell" / "record.json", replace(record(), laps=[], status="failed", reason="x").to_json())
    older = record().to_json()
    older["config"] = {"workload": "digits"}
    write_json(tmp_path / "older" / "record.json", older)
    found = list_records(tmp_path)
    assert not found.damaged_files and found.rows.examples.tolist() == [0, 500]
    assert found.rows.batch_size.tolist() == [32, 32]


@pytest.mark.parametrize(
    "wrong",
    [
        {"schema": 1},
        {"config": []},
        {"config": {"workload": 3}},
        {"config": {"workload": "digits", "batch_size": "32"}},
        {"config": {"workload": "digits", "batch_size": 1 << 40, "workers": 1 << 40}},
        {"config": {"workload": "digits", "seed": 1 << 63}},
        {"config": {}},
        {"laps": 3},
        {"laps": [{}]},
        {"status": ["max_examples"]},
        {"test": "good"},
    ],
)
def test_what_no_job_of_ours_wrote_is_named_and_costs_no_other_its_row(root, wrong):
    write_json(root / "odd" / "record.json", record().to_json() | wrong)
    found = list_records(root)
    assert [*found.damaged_files] == [str(root / "odd" / "record.json")]
    assert len(found.rows) == 3


def test_files_that_cannot_be_read_are_counted_and_named_in_a_sentence(root, capsys, monkeypatch):
    broken = {name: text for name, text in WRONG.items() if name.endswith("record.json")}
    for name, text in broken.items():
        (root / name).parent.mkdir()
        (root / name).write_text(text)
    (root / "pipe").mkdir()
    os.mkfifo(root / "pipe" / "record.json")
    (root / "gone").mkdir()
    (root / "gone" / "record.json").symlink_to(root / "nowhere")
    out = root.parent / "records.csv"
    monkeypatch.setattr(sys, "argv", ["records", str(root), "--out", str(out)])
    assert records.main() == 0
    said = capsys.readouterr()
    assert said.out == f"3 records in {out}\n"
    assert f"{len(broken) + 2} files" in said.err and all(name in said.err for name in broken)
    table = pd.read_csv(out)
    assert [*table.columns] == [*RECORD_COLUMNS] and len(table) == 3


def test_rows_are_shown_as_far_as_a_screen_holds_them(root, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["records", str(root)])
    monkeypatch.setattr(records, "MAX_PRINTED_ROWS", 2)
    assert records.main() == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 4 and said[0].split()[:2] == ["path", "workload"]
    assert said[-1] == "3 records, 1 of them not shown: write all to a CSV with --out"


@pytest.mark.parametrize("words", [["none"], ["s3://bucket/runs"], [".", "--out", "."], [".", "--out", "/proc/x.csv"]])
def test_what_cannot_be_listed_is_one_sentence(words, tmp_path):
    command = [sys.executable, "-m", "jobs.records", *words]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
