import json

from jobs.cli.progress import RunProgress


def build_lap(examples_seen):
    return {
        "step": examples_seen // 10,
        "seen": examples_seen,
        "examples": 100,
        "seconds": 0.5,
        "loss": 1.25,
        "metric": examples_seen / 1000,
    }


def test_each_lap_is_printed_once_when_its_line_is_complete(tmp_path, capsys):
    journal = tmp_path / "laps.jsonl"
    with RunProgress(journal, max_examples=1000) as progress:
        progress.show_new_laps()  # before the journal exists
        first, second = (json.dumps(build_lap(examples_seen)) + "\n" for examples_seen in (100, 200))
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
    lines = [json.dumps(build_lap(examples_seen)) + "\n" for examples_seen in (100, 200, 300)]
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
