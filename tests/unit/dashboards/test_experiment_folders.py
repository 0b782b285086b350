"""What a folder holds decides on the kind of its experiment, and its pages are written when they are missing."""

import os
from dataclasses import replace

import pytest

from dashboards.build import build_index, is_page_stale, refresh_page
from dashboards.experiments import (
    NO_PLAN,
    Experiment,
    classify_folder,
    experiment_at,
    find_experiments,
    load_experiment,
    mark_unreadable,
    modification_time,
    read_sweep,
    read_trials,
    require_keys,
    trials_to_table,
    try_load,
)
from dashboards.metrics_snapshot import MetricsSnapshot
from dashboards.page import INDEX_LINK_TEXT
from dashboards.reports import write_pages
from equipoise.storage.atomic import write_json
from tests.support.device_comparisons import build_comparison
from tests.support.errors import raises_code
from tests.support.link_reports import build_link_report
from tests.support.manifests import build_manifest
from tests.support.plan_documents import build_document, build_interval
from tests.support.profile_reports import build_profile_report
from tests.support.sweep_folders import write_statistical_csv, write_system_csv
from tests.unit.dashboards.test_training_run import record


def write_record(folder, name="record.json", **changes):
    """Write the record of a run, and return its folder."""
    write_json(folder / name, replace(record(), **changes).to_json())
    return folder


def write_plan(folder):
    write_json(folder / "plan.json", build_document().to_json())
    return folder


def write_trial(folder):
    write_json(folder / "trial.json", {"workload": "digits"})
    return folder


def test_pages_link_to_their_index_also_those_that_were_written_before_it(tmp_path):
    run, deep = write_record(tmp_path / "run"), write_record(tmp_path / "a" / "b" / "run of 5 %")
    write_pages(load_experiment(run))
    assert "all experiments" not in (run / "run.html").read_text()
    build_index(tmp_path, tmp_path / "index.html")
    assert '<a href="../index.html">all experiments</a>' in (run / "run.html").read_text()
    assert '<a href="../../../index.html">all experiments</a>' in (deep / "run.html").read_text()
    write_pages(load_experiment(run))  # by a command that knows of no index
    assert '<a href="../index.html">all experiments</a>' in (run / "run.html").read_text()
    assert "all experiments</a>" not in (tmp_path / "index.html").read_text()
    assert not is_page_stale(load_experiment(run))
    elsewhere = build_index(tmp_path, tmp_path.with_name("elsewhere.html"))
    assert elsewhere.exists() and "run/run.html" in elsewhere.read_text()


def test_files_of_a_folder_decide_on_its_kind(tmp_path):
    write_json(tmp_path / "check" / "verdict.json", {"state": "ok"})
    write_json(tmp_path / "bundle" / "bundle.json", build_manifest().to_json())
    kinds = {
        write_record(tmp_path / "run"): "run",
        tmp_path / "check": "check",
        tmp_path / "bundle": "bundle",
        write_plan(tmp_path / "plan"): "plan",
        write_trial(write_plan(tmp_path / "sweep")): "sweep",
    }
    assert {folder: load_experiment(folder).kind for folder in kinds} == kinds
    assert not any(load_experiment(folder).problem for folder in kinds)
    assert [experiment.kind for experiment in find_experiments(tmp_path)] == ["bundle", "check", "plan", "run", "sweep"]


def test_record_of_a_run_comes_before_what_else_is_in_its_folder(tmp_path):
    write_trial(write_record(write_plan(tmp_path)))
    assert load_experiment(tmp_path).kind == "run"


def test_sweep_in_progress_is_one_with_step_times(tmp_path):
    write_trial(tmp_path)
    experiment = load_experiment(tmp_path)
    assert experiment.kind == "run" and "in progress or was interrupted" in experiment.problem
    assert experiment.modified == (tmp_path / "trial.json").stat().st_mtime
    write_system_csv(tmp_path / "system.csv")
    experiment = load_experiment(tmp_path)
    assert experiment.kind == "sweep" and not experiment.problem
    assert experiment.content.plan.warnings == (NO_PLAN,)
    assert experiment.content.trial == {"workload": "digits"}
    assert len(experiment.content.step_times) == 12
    (tmp_path / "trial.json").unlink()
    assert classify_folder(tmp_path, {"system.csv"}) is None


def test_sweep_that_is_measuring_step_times_has_none_yet(tmp_path):
    (write_trial(tmp_path) / "system").mkdir()
    assert load_experiment(tmp_path).kind == "sweep"
    assert load_experiment(tmp_path).content.step_times is None


def test_sweep_that_has_only_begun_is_no_run(tmp_path):
    (write_trial(tmp_path) / "setup.json").write_text("{}")  # as long as Ray starts the first workers
    assert load_experiment(tmp_path).kind == "sweep"


def test_folder_without_experiment_is_of_unknown_kind(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        experiment = load_experiment(folder)
        assert (experiment.kind, experiment.content, experiment.page_path) == ("?", None, None)
        assert str(folder) in experiment.problem


def test_trials_in_progress_are_counted_and_tabulated(tmp_path):
    write_trial(tmp_path)
    write_record(tmp_path / "trials", "b.json", examples_to_target=450.0)
    write_record(tmp_path / "trials", "a.json", examples_to_target=None)
    (tmp_path / "trials" / "c.json").write_text("{")
    sweep = read_sweep(tmp_path / "trial.json")
    assert [trial.examples_to_target for trial in sweep.unfinished_trials] == [None, 450.0]
    assert sweep.num_trials == 3
    (row,) = sweep.examples_to_target.to_dict("records")
    config = record().config
    assert row == {
        **{"global_batch": config.global_batch, "lr": config.lr, "seed": config.seed},
        **{"examples": 450.0, "reached": 1},
    }
    assert read_trials(tmp_path / "missing") == []
    assert trials_to_table(sweep.unfinished_trials[:1]) is None


def test_finished_sweep_counts_the_rows_of_its_table(tmp_path):
    write_trial(write_plan(tmp_path))
    write_statistical_csv(tmp_path / "statistical.csv", seeds=1)
    write_record(tmp_path / "trials", "a.json")
    write_json(tmp_path / "confirm.json", {"seconds": 90.0, "predicted": vars(build_interval(100.0)), "inside": True})
    sweep = read_sweep(tmp_path / "plan.json")
    assert sweep.num_trials == len(sweep.examples_to_target) == 12
    assert not sweep.unfinished_trials
    assert sweep.plan.warnings == ()


def test_problem_names_the_file_and_the_kind(tmp_path):
    write_json(tmp_path / "verdict.json", {"state": "fine"})
    experiment = load_experiment(tmp_path)
    assert experiment.kind == "check" and experiment.content is None
    assert str(tmp_path / "verdict.json") in experiment.problem and "EquipoiseError" not in experiment.problem
    assert experiment.modified > 0


def test_contents_that_no_reader_expects_are_named_with_their_error(tmp_path):
    file = write_trial(tmp_path) / "trial.json"
    experiment = try_load("sweep", tmp_path, file, lambda path: {}["workload"])
    assert experiment.problem == f"cannot read {file}: it is not the file of a sweep (KeyError('workload'))"


def test_experiment_that_cannot_be_shown_keeps_its_place_without_its_content(tmp_path):
    marked = mark_unreadable(Experiment(kind="run", path=tmp_path, content=1, modified=5.0), KeyError("a"))
    assert (marked.kind, marked.path, marked.content, marked.modified) == ("run", tmp_path, None, 5.0)
    assert "(KeyError)" in marked.problem


def test_missing_file_was_last_written_in_1970(tmp_path):
    assert modification_time(tmp_path / "missing") == 0
    os.utime(write_trial(tmp_path) / "trial.json", (50, 60))
    assert modification_time(tmp_path / "trial.json") == 60


def test_keys_that_a_file_lacks_are_named(tmp_path):
    assert require_keys({"a": 1, "b": 2}, tmp_path, "a", "b") == {"a": 1, "b": 2}
    with raises_code("file-damaged", "lacks b, c"):
        require_keys({"a": 1}, tmp_path, "a", "b", "c")
    with raises_code("file-damaged", "not a JSON object"):
        require_keys([], tmp_path)


@pytest.mark.parametrize("path", ["a/trials", "trials/a", ".hidden", "a/.hidden", "../root/a", "a\0b"])
def test_folders_that_an_index_does_not_show_are_not_opened(path, tmp_path):
    root = tmp_path / "root"
    write_record(root / "a")
    for folder in ("a/trials", "trials/a", ".hidden", "a/.hidden"):
        write_record(root / folder)
    assert experiment_at(root, root.joinpath(path).relative_to(root)) is None
    assert experiment_at(root, root / "a") is None  # not relative
    assert experiment_at(root, (root / "a").relative_to(root)).kind == "run"
    assert [experiment.path for experiment in find_experiments(root)] == [root / "a"]


def test_pages_are_named_relative_to_a_folder_above(tmp_path):
    names = {
        kind: Experiment(kind=kind, path=tmp_path / "a").page_names(tmp_path)
        for kind in ("run", "sweep", "plan", "check", "profile", "comparison", "links", "bundle", "?")
    }
    curve, scaling = "a/curve", "a/scaling"
    assert names == {
        **{"run": ["a/run"], "sweep": [curve, scaling], "plan": [curve, scaling], "check": ["a/drift"]},
        **{"profile": ["a/profile"], "comparison": ["a/comparison"], "links": ["a/links"], "bundle": [], "?": []},
    }


def test_measurements_are_experiments_and_the_profile_of_a_run_is_its_page(tmp_path):
    profile = build_profile_report().to_json()
    write_json(tmp_path / "profiled" / "profile.json", profile)
    write_json(tmp_path / "compared" / "comparison.json", build_comparison().to_json())
    write_json(tmp_path / "linked" / "links.json", build_link_report().to_json())
    write_json(write_record(tmp_path / "run") / "profile.json", profile)
    kinds = {experiment.path.name: experiment.kind for experiment in find_experiments(tmp_path)}
    assert kinds == {"profiled": "profile", "compared": "comparison", "linked": "links", "run": "run"}
    run = load_experiment(tmp_path / "run")
    assert run.page_names(tmp_path) == ["run/run", "run/profile"]
    assert write_pages(run) == [tmp_path / "run" / "run.html", tmp_path / "run" / "profile.html"]
    build_index(tmp_path, tmp_path / "index.html")
    index = (tmp_path / "index.html").read_text()
    for page in ("profiled/profile.html", "compared/comparison.html", "linked/links.html"):
        assert (tmp_path / page).is_file() and f'href="{page}"' in index


def test_damaged_profile_of_a_run_is_left_out(tmp_path):
    (write_record(tmp_path) / "profile.json").write_text("[]")
    assert write_pages(load_experiment(tmp_path)) == [tmp_path / "run.html"]
    assert "profile.html" not in (tmp_path / "run.html").read_text()


def test_page_is_stale_if_it_is_missing_or_older_than_its_data(tmp_path):
    experiment = Experiment(kind="run", path=tmp_path, modified=100.0)
    assert is_page_stale(experiment)
    (tmp_path / "run.html").write_text(INDEX_LINK_TEXT)
    for written, is_stale in ((99, True), (100, False), (101, False)):
        os.utime(tmp_path / "run.html", (written, written))
        assert is_page_stale(experiment) == is_stale
    os.utime(tmp_path / "run.html", (1, 1))
    assert not is_page_stale(replace(experiment, problem="damaged"))


def test_page_without_a_link_to_an_index_is_stale(tmp_path):
    (tmp_path / "run.html").write_text("a page")
    os.utime(tmp_path / "run.html", (101, 101))
    assert is_page_stale(Experiment(kind="run", path=tmp_path, modified=100.0))


def test_page_is_written_only_on_request(tmp_path):
    experiment = load_experiment(write_record(tmp_path))
    assert refresh_page(experiment, write=False) is experiment
    assert not (tmp_path / "run.html").exists()
    assert refresh_page(experiment, write=True) is experiment
    assert (tmp_path / "run.html").exists()


def test_page_that_cannot_be_drawn_is_a_problem_of_its_experiment(tmp_path):
    refreshed = refresh_page(Experiment(kind="run", path=tmp_path, content={"foreign": 1}), write=True)
    assert "cannot be shown" in refreshed.problem and refreshed.content is None


def test_only_so_many_pages_are_written_at_once(tmp_path):
    for name in ("a", "b"):
        write_record(tmp_path / name)
    for expected in ([True, False], [True, True]):
        build_index(tmp_path, tmp_path / "index.html", max_written_pages=1)
        assert [(tmp_path / name / "run.html").exists() for name in ("a", "b")] == expected


def test_counts_of_a_snapshot_are_those_of_the_metric():
    snapshot = MetricsSnapshot(time=1.0, requests={"200": 3.0}, refused={"busy": 1.0})
    assert (snapshot.counts("requests"), snapshot.counts("refused")) == ({"200": 3.0}, {"busy": 1.0})
    assert snapshot.counts("batches") == {}
