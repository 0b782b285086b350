import json

from jobs.cli.progress import RunProgress


def lap(seen):
    return {"step": seen // 10, "seen": seen, "examples": 100, "seconds": 0.5, "loss": 1.25, "metric": seen / 1000}


def test_each_lap_is_shown_once_and_half_a_line_waits(tmp_path, capsys):
    journal = tmp_path / "laps.jsonl"
    with RunProgress(journal, max_examples=1000) as progress:
        progress.show_new_laps()  # not there yet
        first, second = (json.dumps(lap(seen)) + "\n" for seen in (100, 200))
        journal.write_text(first + second[:20])
        progress.show_new_laps()
        assert capsys.readouterr().out.count("\n") == 1
        journal.write_text(first + second)
        progress.show_new_laps()
        said = capsys.readouterr().out
        assert "examples       200" in said
        assert "200/s" in said
        assert "metric 0.2000" in said
        assert "4 s left at most" in said
    assert capsys.readouterr().out == ""


def test_a_resumed_run_shows_only_what_is_new(tmp_path, capsys):
    journal = tmp_path / "laps.jsonl"
    texts = [json.dumps(lap(seen)) + "\n" for seen in (100, 200, 300)]
    journal.write_text("".join(texts[:2]))
    with RunProgress(journal, max_examples=250, examples_seen=200) as progress:
        progress.show_new_laps()
        assert capsys.readouterr().out == ""
        fresh = tmp_path / "fresh"  # workers that start again replace the journal
        fresh.write_text("".join(texts))
        fresh.replace(journal)
        progress.show_new_laps()
        said = capsys.readouterr().out
        assert said.count("\n") == 1
        assert "examples       300" in said
        assert "0 s left at most" in said and "-0 s" not in said
