"""Progress on a terminal, of a journal behind a URL, and of a run at its end."""

import time
from concurrent.futures import wait
from dataclasses import replace

import pytest

from equipoise.runs.record import Lap
from equipoise.storage.object_store import RemotePath
from jobs.cli.progress import JOURNAL_POLL_SECONDS, RemoteRunProgress, RunProgress, follow_run
from jobs.ray_train.run_channel import format_journal_line
from tests.support.terminal import open_terminal

LAP = Lap(
    step=10,
    steps=10,
    seen=100,
    examples=100,
    workers=1,
    lr=0.1,
    loss=1.25,
    seconds=0.5,
    data_seconds=0.1,
    compute_seconds=0.3,
    exchange_seconds=0.1,
)


def format_laps(*seen, **changes):
    return "".join(format_journal_line(replace(LAP, seen=count, **changes)) for count in seen)


def show_journal(path, text, **options):
    path.write_text(text)
    with follow_run(path, **options):
        pass


def read_due_journal(progress):
    """Read a journal behind a URL now, and show its laps."""
    progress.next_read_at = 0.0
    progress.show_new_laps()
    if progress.pending_text is not None:
        wait([progress.pending_text])
        progress.show_new_laps()


def test_lap_is_printed_with_its_rate_and_the_time_left(tmp_path, capsys):
    show_journal(tmp_path / "laps.jsonl", format_laps(1200, step=120, metric=0.5), max_examples=2000)
    words = " ".join(capsys.readouterr().out.split())
    assert words == "step 120 examples 1,200 200/s loss 1.2500 metric 0.5000 4 s left at most"


def test_lap_without_an_evaluation_has_no_metric(tmp_path, capsys):
    show_journal(tmp_path / "laps.jsonl", format_laps(100), max_examples=200)
    assert "metric" not in capsys.readouterr().out


def test_lap_of_a_program_shows_what_it_has_reported(tmp_path, capsys):
    show_journal(tmp_path / "laps.jsonl", format_laps(1200, loss=None, lr=None, metric=12.5), max_examples=None)
    assert " ".join(capsys.readouterr().out.split()) == "step 10 examples 1,200 200/s metric 12.5000"
    show_journal(tmp_path / "laps.jsonl", format_laps(100, loss=None), max_examples=200)
    assert " ".join(capsys.readouterr().out.split()) == "step 10 examples 100 200/s 0 s left at most"


def test_bar_of_a_run_of_unknown_length_counts_its_examples(tmp_path):
    journal = tmp_path / "laps.jsonl"
    with open_terminal("stderr") as read_output:
        with RunProgress(journal, max_examples=None) as progress:
            journal.write_text(format_laps(100, 200, loss=None))
            progress.show_new_laps()
            assert progress.bar.n == 200 and progress.bar.total is None
        assert "200" in read_output()


@pytest.mark.parametrize("seen", [100, 120])
def test_nothing_is_left_of_a_slow_run_at_its_end(tmp_path, capsys, seen):
    show_journal(tmp_path / "laps.jsonl", format_laps(seen, examples=1, seconds=100.0), max_examples=100)
    assert capsys.readouterr().out.endswith("  0 s left at most\n")


def test_first_example_of_a_run_is_shown(tmp_path, bucket, capsys):
    local, remote = tmp_path / "laps.jsonl", bucket / "laps.jsonl"
    for journal in (local, remote):
        journal.write_text(format_laps(1, examples=1))
    for progress in (follow_run(local, 100), RunProgress(local, 100), RemoteRunProgress(remote, 100)):
        with progress:
            pass
        assert "examples         1 " in capsys.readouterr().out


def test_bar_counts_from_where_the_run_was_resumed(tmp_path):
    journal = tmp_path / "laps.jsonl"
    with open_terminal("stderr") as read_output:
        with RunProgress(journal, max_examples=1000, examples_seen=200) as progress:
            started_at = progress.bar.start_t
            journal.write_text(format_laps(200, 300, metric=0.75))
            progress.show_new_laps()
            assert (progress.bar.initial, progress.bar.n, progress.bar.total) == (200, 300, 1000)
            assert progress.bar.start_t > started_at  # the rate leaves out the start of the cluster
            first_lap_at = progress.bar.start_t
            journal.write_text(format_laps(200, 300, 400, metric=0.75))
            progress.show_new_laps()
            assert (progress.bar.initial, progress.bar.n, progress.bar.start_t) == (200, 400, first_lap_at)
        output = read_output()
    assert "loss 1.2500  metric 0.7500" in output and " examples" in output and "1.00k" in output
    assert output.endswith("\n")  # what is printed next begins on a line of its own


def test_laps_on_a_terminal_are_not_printed_as_lines(tmp_path, capsys):
    with open_terminal("stderr") as read_output:
        show_journal(tmp_path / "laps.jsonl", format_laps(100, 200), max_examples=200)
        assert "200/200" in read_output()
    assert capsys.readouterr().out == ""


def test_journal_behind_a_url_is_followed(bucket):
    journal, seen = bucket / "laps.jsonl", []
    with follow_run(journal, 1000, examples_seen=100, log_lap=lambda lap: seen.append(lap.seen)) as progress:
        assert isinstance(progress, RemoteRunProgress)
        journal.write_text(format_laps(100, 200))
        read_due_journal(progress)
        assert seen == [200] and progress.pending_text is None
        journal.write_text(format_laps(100, 200, 300))
        progress.show_new_laps()
        assert progress.pending_text is None  # the next read is not due yet
        assert 0 < progress.next_read_at - time.monotonic() <= 2.0 == JOURNAL_POLL_SECONDS
    assert seen == [200, 300]


def test_journal_that_does_not_exist_yet_is_no_problem(tmp_path, bucket, capsys):
    for journal in (tmp_path / "none.jsonl", bucket / "none.jsonl"):
        with follow_run(journal, 1000) as progress:
            progress.show_new_laps()
    assert capsys.readouterr() == ("", "")


def test_store_that_does_not_answer_is_noted_once_until_it_does(bucket, capsys):
    journal = bucket / "laps.jsonl"
    with follow_run(journal, 1000) as progress:
        for content, notes, lines in (
            (b"\xff", 1, 0),
            (b"\xff\xff", 0, 0),
            (format_laps(100).encode(), 0, 1),
            (b"\xff", 1, 0),
        ):
            journal.write_bytes(content)
            read_due_journal(progress)
            output = capsys.readouterr()
            assert (output.err.count("note: "), output.out.count("\n")) == (notes, lines)
        journal.write_text(format_laps(100, 200))
    assert capsys.readouterr() == ("", "")  # a store that is gone is not waited for at the end


def test_location_that_cannot_be_read_is_noted(capsys):
    with follow_run(RemotePath("nowhere://bucket/laps.jsonl"), 1000):
        pass
    output = capsys.readouterr()
    assert output.err.startswith("note: ") and "the run continues" in output.err and output.out == ""
