"""Records of the trials of a sweep that were stopped, and what they say after their processes have ended."""

from dataclasses import replace

from equipoise.runs.folder import read_record
from equipoise.storage.atomic import write_json
from jobs.ray_tune.trial_records import mark_cut_off, read_stopped_trials
from tests.unit.planning.test_sweep_budget import build_trial


def test_no_stopped_trial_says_that_it_runs(tmp_path):
    marked = mark_cut_off(build_trial(0.3))
    written_late = replace(marked, status="running", reason="")
    ended_late = replace(marked, status="reached_target", reason="")
    paths = [tmp_path / f"{name}.json" for name in ("marked", "running", "ended")]
    for path, record in zip(paths, (marked, written_late, ended_late), strict=True):
        write_json(path, record.to_json())
    (ended,) = read_stopped_trials(paths)
    assert ended.status == "reached_target"
    assert [read_record(path).status for path in paths] == ["cut_off", "cut_off", "reached_target"]
    assert read_record(paths[1]).reason == "the time of the sweep was up"
