import json

import pytest

from equipoise.errors import EquipoiseError
from equipoise.runs.record import Lap
from jobs.cli.progress import RunProgress
from jobs.ray_train.run_channel import format_journal_line


def build_journal_line(examples_seen):
    lap = Lap(
        step=examples_seen // 10,
        steps=10,
        seen=examples_seen,
        examples=100,
        workers=1,
        lr=0.1,
        loss=1.25,
        seconds=0.5,
        data_seconds=0.1,
        compute_seconds=0.3,
        exchange_seconds=0.1,
        metric=examples_seen / 1000,
    )
    return format_journal_line(lap)


def test_each_lap_is_printed_once_when_its_line_is_complete(tmp_path, capsys):
    journal = tmp_path / "laps.jsonl"
    with RunProgress(journal, max_examples=1000) as progress:
        progress.show_new_laps()  # before the journal exists
        assert not progress.has_new_laps and not progress.has_progress()
        first, second = (build_journal_line(examples_seen) for examples_seen in (100, 200))
        journal.write_text(first + second[:20])
        progress.show_new_laps()
        assert capsys.readouterr().out.count("\n") == 1
        journal.write_text(first + second)
        progress.show_new_laps()
        stdout = capsys.readouterr().out
        assert "examples       200" in stdout
        assert "200/s" in stdout
        assert "metric 0.2000" in stdout
        assert "4 s left at most" in stdout
    assert capsys.readouterr().out == ""


def test_resumed_run_prints_only_new_laps(tmp_path, capsys):
    journal = tmp_path / "laps.jsonl"
    lines = [build_journal_line(examples_seen) for examples_seen in (100, 200, 300)]
    journal.write_text("".join(lines[:2]))
    with RunProgress(journal, max_examples=250, examples_seen=200) as progress:
        progress.show_new_laps()
        assert capsys.readouterr().out == ""
        new_journal = tmp_path / "fresh"  # workers that start again replace the journal
        new_journal.write_text("".join(lines))
        new_journal.replace(journal)
        progress.show_new_laps()
        stdout = capsys.readouterr().out
        assert stdout.count("\n") == 1
        assert "examples       300" in stdout
        assert "0 s left at most" in stdout and "-0 s" not in stdout


@pytest.mark.parametrize("line", ["{", "[]", "null", '{"seen": 100}', build_journal_line(100).replace("0.5", "0")])
def test_journal_line_that_holds_no_lap_is_refused(tmp_path, line):
    journal = tmp_path / "laps.jsonl"
    journal.write_text(line.rstrip() + "\n")
    progress = RunProgress(journal, max_examples=1000)
    with pytest.raises(EquipoiseError) as caught:
        progress.show_new_laps()
    assert caught.value.code == "run-damaged"


def test_new_laps_are_logged_once(tmp_path):
    journal, logged_laps = tmp_path / "laps.jsonl", []
    journal.write_text("".join(build_journal_line(examples_seen) for examples_seen in (100, 200, 300)))
    with RunProgress(journal, max_examples=1000, examples_seen=100, log_lap=logged_laps.append) as progress:
        progress.show_new_laps()
    assert [lap.seen for lap in logged_laps] == [200, 300]


def test_lap_counts_as_progress_before_it_is_shown(tmp_path):
    journal = tmp_path / "laps.jsonl"
    with RunProgress(journal, max_examples=1000) as progress:
        journal.touch()
        assert not progress.has_progress()
        journal.write_text(build_journal_line(100))
        assert progress.has_progress() and not progress.has_new_laps


def test_journal_of_an_earlier_command_is_no_progress_until_workers_write_it_anew(tmp_path):
    journal = tmp_path / "laps.jsonl"
    journal.write_text(build_journal_line(100))
    with RunProgress(journal, max_examples=1000, examples_seen=100) as progress:
        assert not progress.has_progress()
        (tmp_path / "new").write_text(build_journal_line(100))
        (tmp_path / "new").replace(journal)
        assert progress.has_progress() and not progress.has_new_laps


def test_averages_and_batch_normalisation_are_said_once(tmp_path, capsys):
    journal = tmp_path / "laps.jsonl"
    averages = {"average_interval": 16, "averages_statistics": True, "all_reduce": ["tree"]}
    journal.write_text(
        build_journal_line(100)
        + "".join(json.dumps(json.loads(build_journal_line(seen)) | averages) + "\n" for seen in (200, 300))
    )
    with RunProgress(journal, max_examples=1000) as progress:
        progress.show_new_laps()
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("step")]
    assert lines == [
        "weights and moments of the optimizer are averaged every 16 steps",
        "batch normalisation: running statistics are averaged every 16 steps; between them each worker normalises by"
        " its own batches",
        "weights are summed by tree",
    ]


@pytest.mark.parametrize(
    ("interval", "words"), [(1, "in every step"), (2, "every 2 steps"), (1500, "every 1,500 steps")]
)
def test_interval_of_averages_is_in_words(tmp_path, capsys, interval, words):
    journal = tmp_path / "laps.jsonl"
    journal.write_text(json.dumps(json.loads(build_journal_line(100)) | {"average_interval": interval}) + "\n")
    with RunProgress(journal, max_examples=1000) as progress:
        progress.show_new_laps()
    assert f"weights and moments of the optimizer are averaged {words}\n" in capsys.readouterr().out


def test_batch_that_has_grown_is_said_once(tmp_path, capsys):
    journal = tmp_path / "laps.jsonl"
    batches = [(100, 10), (100, 10), (100, 5), (100, 5), (100, 6), (100, 1)]  # examples and steps; 16 is no multiple
    laps = [
        json.loads(build_journal_line(100 * index + 100)) | {"examples": examples, "steps": steps}
        for index, (examples, steps) in enumerate(batches)
    ]
    journal.write_text("".join(json.dumps(lap) + "\n" for lap in laps))
    with RunProgress(journal, max_examples=1000) as progress:
        progress.show_new_laps()
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("step")]
    assert lines == ["the global batch has grown from 10 to 20 examples"]


def test_line_of_a_lap_says_how_stale_gradients_were(tmp_path, capsys):
    journal = tmp_path / "laps.jsonl"
    staleness = {"mean_staleness": 1.26, "max_staleness": 3}
    journal.write_text(build_journal_line(100) + json.dumps(json.loads(build_journal_line(200)) | staleness) + "\n")
    with RunProgress(journal, max_examples=1000) as progress:
        progress.show_new_laps()
    assert ["staleness 1.3" in line for line in capsys.readouterr().out.splitlines()] == [False, True]


def test_way_to_sum_gradients_is_said_where_it_changes(tmp_path, capsys):
    journal, laps = tmp_path / "laps.jsonl", []
    ways = [(), ("backend",), ("ring",), ("ring",), (), ("ring", "direct", "direct"), ("backend", "backend")]
    for index, all_reduce in enumerate(ways):
        lap = json.loads(build_journal_line(100 * index + 100))
        laps.append(json.dumps(lap | {"all_reduce": all_reduce}) + "\n")
    journal.write_text("".join(laps))
    with RunProgress(journal, max_examples=1000) as progress:
        progress.show_new_laps()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        *("step", "step", "gradients", "step", "step", "step", "gradients", "step", "gradients", "step")
    ]
    assert [line for line in lines if line.startswith("gradients")] == [
        "gradients are summed by ring",
        "gradients are summed by ring in 1 bucket, direct in 2 buckets",
        "gradients are summed by the backend",
    ]
