"""The index of the results: what it lists, and that changes, and only these, are read."""

import json
import os
import shutil
import sqlite3

import pytest

from services.site.experiments import folder_listing, index_rows
from services.site.experiments.index_queries import TableQuery, count_kinds, find_row, list_broken_rows, query_table
from services.site.experiments.record_index import RecordIndex
from tests.support.errors import raises_code
from tests.support.experiment_folders import write_results, write_run, write_trials


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return write_results(tmp_path_factory.mktemp("template"))


@pytest.fixture
def results(template, tmp_path):
    return shutil.copytree(template, tmp_path / "results")


@pytest.fixture
def index(results):
    index = RecordIndex(results, results / ".site")
    index.update_now()
    yield index
    index.close()


@pytest.fixture
def reads(monkeypatch):
    """Names of the records that are read."""
    names = []

    def read(file, path, kind, original=index_rows.read_record_row):
        names.append(path)
        return original(file, path, kind)

    monkeypatch.setattr(folder_listing, "read_record_row", read)
    return names


def list_paths(index, text=""):
    """Return the paths of all rows that a filter lets through."""
    return {row.path for row in query_table(index.connect(), TableQuery(filter=text, limit=1000)).rows}


def test_runs_sweeps_trials_and_broken_files_are_listed(index):
    kinds = count_kinds(index.connect())
    assert kinds == {"run": 4, "sweep": 1, "trial": 3, "plan": 1}
    row = find_row(index.connect(), "first")
    assert (row.values["lr"], row.values["seed"], row.values["status"]) == (0.05, 1, "reached_target")
    assert row.page_name == "first/run.html"
    broken = find_row(index.connect(), "broken")
    assert "not valid JSON" in broken.problem and broken.values["status"] == "unreadable" and broken.page_name is None
    assert (
        find_row(index.connect(), "odd").problem
        and find_row(index.connect(), "started").values["status"] == "in progress"
    )
    assert {row.path for row in list_broken_rows(index.connect(), 9)} == {"broken", "odd"}
    sweep = find_row(index.connect(), "sweep")
    assert sweep.values["status"] == "plan, not confirmed" and sweep.values["workers"] >= 1
    assert find_row(index.connect(), "sweep/trials/batch-32-lr-0.05-seed-0").page_name.endswith("seed-0.html")


def test_only_what_is_new_is_read(index, results, reads):
    index.update_now()
    assert reads == []
    write_run(results / "third", lr=0.2)
    write_trials(results / "sweep", 1, start=7)
    index.update_now()
    assert sorted(reads) == ["sweep/trials/batch-32-lr-0.05-seed-7", "third"]
    assert {"third", "sweep/trials/batch-32-lr-0.05-seed-7"} <= list_paths(index)


def test_a_record_that_is_written_again_has_its_new_values(index, results):
    version = index.version
    write_run(results / "first", lr=0.3)
    index.update_now()
    assert find_row(index.connect(), "first").values["lr"] == 0.3 and index.version > version


def test_what_was_removed_is_no_longer_listed(index, results):
    shutil.rmtree(results / "deep")
    (results / "sweep" / "trials" / "batch-32-lr-0.05-seed-1.json").unlink()
    (results / "first" / "record.json").unlink()
    index.update_now()
    paths = list_paths(index)
    assert not {"deep/second", "first", "sweep/trials/batch-32-lr-0.05-seed-1"} & paths
    assert "sweep/trials/batch-32-lr-0.05-seed-0" in paths


def test_a_new_process_finds_what_was_changed_in_place(index, results):
    text = (results / "first" / "record.json").read_text()
    before = (results / "first").stat().st_mtime_ns
    (results / "first" / "record.json").write_text(text.replace('"seed": 1', '"seed": 41'))
    assert (results / "first").stat().st_mtime_ns == before
    again = RecordIndex(results, results / ".site")
    again.update_now()
    assert find_row(again.connect(), "first").values["seed"] == 41


def test_a_site_that_was_killed_goes_on_with_its_index(index, results, reads):
    write_run(results / "third")
    scan = index._create_scan()
    scan.scan_all(should_stop=iter([False, True, True, True]).__next__)  # stopped before the marked folders were read
    assert "third" not in list_paths(index)
    RecordIndex(results, results / ".site").update_now()
    assert "third" in list_paths(index) and reads == ["third"]


def test_an_index_that_is_damaged_is_built_again(index, results):
    index.close()
    for file in (results / ".site").glob("index.sqlite*"):
        file.write_bytes(b"no database" * 500)
    again = RecordIndex(results, results / ".site")
    again.update_now()
    assert "first" in list_paths(again)


def test_the_thread_looks_for_changes_when_it_is_woken(index, results):
    index.wake()
    write_run(results / "later")
    for _ in range(400):
        index.wake()
        if "later" in list_paths(index):
            return
        index._stop.wait(0.05)
    pytest.fail("the index did not find the new run")


def test_names_that_are_no_text_do_not_end_a_scan(index, results):
    shutil.copytree(results / "first", results / os.fsdecode(b"bad-\xff-name"))
    index.update_now()
    assert any("bad-" in path for path in list_paths(index))


@pytest.mark.parametrize("seconds", [0, 2**34], ids=["no time", "beyond 2262"])
def test_folders_and_files_of_odd_times_are_read_once(index, results, reads, seconds):
    for path in (results / "first" / "record.json", results / "first", results):
        os.utime(path, (seconds, seconds))
    for _ in range(2):
        index.update_now()
        assert reads == ["first"]


def test_a_number_that_no_database_holds_does_not_end_a_scan(index, results):
    plan = json.loads((results / "sweep" / "plan.json").read_text())
    plan["plan"]["global_batch"] = 2**70
    (results / "huge").mkdir()
    (results / "huge" / "plan.json").write_text(json.dumps(plan))
    write_run(results / "third")
    index.update_now()
    assert {"huge", "third"} <= list_paths(index)


def test_results_behind_a_link_are_followed(results, tmp_path):
    (tmp_path / "link").symlink_to(results)
    index = RecordIndex(tmp_path / "link", results / ".site")
    index.update_now()
    write_run(results / "third")
    index.update_now()
    assert "third" in list_paths(index)


def test_a_failed_scan_leaves_the_next_one_its_transaction(index, results):
    scan = index._create_scan()
    scan._begin()
    scan.roll_back()
    write_run(results / "third")
    scan.scan_all()
    assert "third" in list_paths(index)


def test_an_index_that_cannot_be_opened_now_is_kept(index, results):
    file, away = results / ".site" / "index.sqlite", results / ".site" / "away"
    index.close()
    file.rename(away)
    file.mkdir()
    with pytest.raises(sqlite3.OperationalError):
        RecordIndex(results, results / ".site")
    assert file.is_dir()


def test_damaged_notes_are_kept_and_named(index, results):
    index.close()
    (results / ".site" / "notes.sqlite").write_bytes(b"no database" * 500)
    with raises_code("file-damaged", "notes.sqlite"):
        RecordIndex(results, results / ".site")
    assert (results / ".site" / "notes.sqlite").stat().st_size == 5500
