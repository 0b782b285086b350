"""Listing the records of runs and trials in one table, whatever other files lie beside them."""

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from equipoise.config import TrainConfig
from equipoise.runs.listing import READ_CHUNK_BYTES, RECORD_COLUMNS, list_records
from equipoise.storage.atomic import write_json
from jobs import records
from tests.unit.dashboards.test_experiments import INVALID_FILES
from tests.unit.dashboards.test_training_run import record

ROOT = Path(__file__).parents[3]


def write_record(path, **options):
    run_record = replace(record(), config=replace(record().config, **options))
    write_json(path, run_record.to_json())
    return run_record


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "runs"
    write_record(root / "one" / "record.json", lr=0.2, workers=2, grad_accumulation=4)
    write_record(root / "swept" / "trials" / "batch-32.json", seed=7)
    write_record(root / "swept" / "confirm" / "1x32" / "record.json", seed=1000)
    return root


def test_row_holds_the_values_of_its_record(root):
    listing = list_records(root)
    assert not listing.damaged_files
    assert [Path(path).relative_to(root).as_posix() for path in listing.rows.path] == [
        "one/record.json",
        "swept/confirm/1x32/record.json",
        "swept/trials/batch-32.json",
    ]
    expected = write_record(root / "one" / "record.json", lr=0.2, workers=2, grad_accumulation=4)
    row = listing.rows.iloc[0]
    columns = ["workload", "optimizer", "workers", "batch_size", "grad_accumulation", "global_batch", "lr", "seed"]
    assert {name: row[name] for name in columns} == {name: getattr(expected.config, name) for name in columns}
    assert (row.status, row.target, row.test) == (expected.status, expected.target, expected.test)
    assert row.seconds == pytest.approx(expected.seconds) and row.examples == expected.laps[-1].seen
    assert pd.isna(row.examples_to_target) and pd.isna(row.model)


def test_direction_and_lack_of_a_target_are_in_the_table(tmp_path):
    falling = replace(record(), target=0.2, lower_is_better=True)
    older = {name: value for name, value in record().to_json().items() if name != "lower_is_better"}
    for name, content in (("a", falling.to_json()), ("b", replace(record(), target=None).to_json()), ("c", older)):
        write_json(tmp_path / name / "record.json", content)
    rows = list_records(tmp_path).rows
    assert rows.lower_is_better.tolist() == [True, False, False]
    assert rows.target.isna().tolist() == [False, True, False] and rows.target[0] == 0.2


def test_run_of_a_command_has_the_name_of_its_program(tmp_path):
    config = TrainConfig(command="python train.py --lr {lr}")
    laps = [replace(lap, loss=None, lr=None, data_seconds=None) for lap in record().laps]
    write_json(tmp_path / "record.json", replace(record(), config=config, laps=laps).to_json())
    listing = list_records(tmp_path)
    assert not listing.damaged_files and listing.rows.workload.tolist() == ["train.py"]


def test_long_record_is_listed_and_numbers_beyond_int64_are_damaged(root):
    run_record = record()
    write_json(root / "long" / "record.json", replace(run_record, laps=list(run_record.laps) * 1000).to_json())
    assert (root / "long" / "record.json").stat().st_size > 2 * READ_CHUNK_BYTES
    # These numbers are of the same types as those of the other records.
    write_record(root / "huge" / "record.json", seed=2**62, workers=2**40, batch_size=2**40)
    listing = list_records(root)
    assert len(listing.rows) == 4 and str(root / "long" / "record.json") in set(listing.rows.path)
    assert [Path(path).parent.name for path in listing.damaged_files] == ["huge"]
    assert "invalid global_batch" in str(listing.damaged_files)


@pytest.mark.parametrize(
    "options",
    [{"workers": 7, "batch_size": (2**63 - 1) // 7}, {"seed": 2**63 - 1}, {"seed": -(2**63)}],  # 2**63 - 1 has factor 7
)
def test_largest_numbers_of_64_bits_are_listed(tmp_path, options):
    options = {"workload": "digits"} | options
    write_json(tmp_path / "record.json", record().to_json() | {"config": options})
    listing = list_records(tmp_path)
    assert not listing.damaged_files
    assert {name: listing.rows[name].item() for name in options} == options
    assert listing.rows.global_batch.item() == options.get("workers", 1) * options.get("batch_size", 32)


def test_files_outside_runs_and_trials_are_not_listed(root):
    for name in ("tune/record.json", "checkpoints/record.json", ".hidden/record.json", "swept/system.json"):
        write_record(root / name)
    write_record(root / "swept" / "trials" / ".batch-64.json.123")
    (root / "linked").symlink_to(root / "one")
    assert len(list_records(root).rows) == 3


def test_record_without_laps_and_record_of_an_older_release_are_listed(tmp_path):
    write_json(tmp_path / "fell" / "record.json", replace(record(), laps=[], status="failed", reason="x").to_json())
    older = record().to_json()
    older["config"] = {"workload": "digits"}
    write_json(tmp_path / "older" / "record.json", older)
    listing = list_records(tmp_path)
    assert not listing.damaged_files and listing.rows.examples.tolist() == [0, 500]
    assert listing.rows.batch_size.tolist() == [32, 32]


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": 1},
        {"config": []},
        {"config": {"workload": 3}},
        {"config": {"workload": "digits", "batch_size": "32"}},
        {"config": {"workload": "digits", "batch_size": 1 << 40, "workers": 1 << 40}},
        {"config": {"workload": "digits", "batch_size": 1 << 32, "workers": 1 << 31}},
        {"config": {"workload": "digits", "seed": 1 << 63}},
        {"config": {"workload": "digits", "seed": -(1 << 63) - 1}},
        {"config": {}},
        {"laps": 3},
        {"laps": [{}]},
        {"laps": [{"seen": 1 << 63, "seconds": 0.5}]},
        {"laps": [{"seen": 100, "seconds": "0.5"}]},
        {"status": ["max_examples"]},
        {"test": "good"},
    ],
)
def test_invalid_record_is_reported_and_the_others_are_listed(root, changes):
    write_json(root / "odd" / "record.json", record().to_json() | changes)
    listing = list_records(root)
    assert [*listing.damaged_files] == [str(root / "odd" / "record.json")]
    assert len(listing.rows) == 3


@pytest.mark.parametrize(
    "content",
    [
        b'{"machine": ' + b"[" * 100_000,
        b'{"status": "\xff"}',
        b'{"target": NaN}',
        b'{"target": 1e999}',
        b"{}}",
    ],
)
def test_content_that_is_not_valid_json_is_damaged(root, content):
    (root / "odd").mkdir()
    (root / "odd" / "record.json").write_bytes(content)
    listing = list_records(root)
    assert [*listing.damaged_files] == [str(root / "odd" / "record.json")]
    assert len(listing.rows) == 3


def test_unreadable_files_are_counted_and_named_in_one_sentence(root, capsys, monkeypatch):
    invalid_files = {name: text for name, text in INVALID_FILES.items() if name.endswith("record.json")}
    for name, text in invalid_files.items():
        (root / name).parent.mkdir()
        (root / name).write_text(text)
    (root / "pipe").mkdir()
    os.mkfifo(root / "pipe" / "record.json")
    (root / "gone").mkdir()
    (root / "gone" / "record.json").symlink_to(root / "nowhere")
    out = root.parent / "records.csv"
    monkeypatch.setattr(sys, "argv", ["records", str(root), "--out", str(out)])
    assert records.main() == 0
    output = capsys.readouterr()
    assert output.out == f"3 records in {out}\n"
    assert f"{len(invalid_files) + 2} files" in output.err and all(name in output.err for name in invalid_files)
    table = pd.read_csv(out)
    assert [*table.columns] == [*RECORD_COLUMNS] and len(table) == 3


def test_printed_rows_are_limited(root, capsys):
    records.print_record_rows(list_records(root), max_rows=2)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and lines[0].split()[:2] == ["path", "workload"]
    assert lines[-1] == "3 records, 1 of them not shown: write all to a CSV with --out"


@pytest.mark.parametrize(
    "arguments", [["none"], ["s3://bucket/runs"], [".", "--out", "."], [".", "--out", "/proc/x.csv"]]
)
def test_listing_error_is_one_sentence(arguments, tmp_path):
    command = [sys.executable, "-m", "jobs.records", *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert process.returncode == 2 and not process.stdout
    assert process.stderr.startswith("error: ") and process.stderr.count("\n") == 1


def run_records(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["records", *map(str, arguments)])
    return records.main()


def test_only_a_file_is_replaced_by_the_csv(root, tmp_path, monkeypatch, capsys):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "table.csv").touch()
    (tmp_path / "link").symlink_to("table.csv")
    assert run_records(monkeypatch, root, "--out", tmp_path / "pipe") == 2
    assert capsys.readouterr().err.endswith("[path-kind]\n") and (tmp_path / "pipe").is_fifo()
    assert run_records(monkeypatch, root, "--out", tmp_path / "link") == 0
    assert (tmp_path / "link").is_symlink() and len(pd.read_csv(tmp_path / "table.csv")) == 3


def test_rows_show_no_control_characters(root, monkeypatch, capsys):
    write_record(root / "odd" / "record.json", workload="a\x1b[31m\nb")
    (root / os.fsdecode(b"\xff\x1b")).mkdir()
    (root / os.fsdecode(b"\xff\x1b") / "record.json").write_text("{")
    assert run_records(monkeypatch, root) == 0
    output = capsys.readouterr()
    assert r"a\x1b[31m\nb" in output.out and r"\udcff\x1b" in output.err
    assert all(character.isprintable() or character == "\n" for character in output.out + output.err)


def test_a_link_to_itself_is_damaged_with_the_reason_of_the_system(root):
    (root / "odd").mkdir()
    (root / "odd" / "record.json").symlink_to("record.json")
    listing = list_records(root)
    assert listing.damaged_files == {str(root / "odd" / "record.json"): os.strerror(errno.ELOOP)}
    assert len(listing.rows) == 3
