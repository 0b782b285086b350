import json

from jobs.progress import Progress


def lap(seen):
    return {"step": seen // 10, "seen": seen, "examples": 100, "seconds": 0.5, "loss": 1.25, "metric": seen / 1000}


def test_each_lap_is_shown_once_and_half_a_line_waits(tmp_path, capsys):
    journal = tmp_path / "laps.jsonl"
    with Progress(journal, cap=1000) as progress:
        progress.look()  # not there yet
        first, second = (json.dumps(lap(seen)) + "\n" for seen in (100, 200))
        journal.write_text(first + second[:20])
        progress.look()
        assert capsys.readouterr().out.count("\n") == 1
        journal.write_text(first + second)
        progress.look()
        said = capsys.readouterr().out
        assert "examples       200" in said
        assert "200/s" in said
        assert "metric 0.2000" in said
        assert "4 s left at most" in said
    assert capsys.readouterr().out == ""
