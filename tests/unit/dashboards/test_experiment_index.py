"""Rows and comparisons of an index show what each experiment holds."""

from dataclasses import replace
from pathlib import Path

import pytest

from dashboards.experiments import Experiment, Sweep
from dashboards.page import Link, NumberCell, TimeCell, render_html
from dashboards.panels.experiment_index import (
    INDEX_COLUMNS,
    MAX_CURVE_POINTS,
    build_index_page,
    comparison_entry,
    count_by_kind,
    experiment_name,
    format_modified,
    metric_curve,
    page_link_finder,
    row_cells,
    sweep_facts,
    time_to_target_curve,
)
from equipoise.drift.diagnosis.verdict import DatasetVerdict
from equipoise.profiling.advice import add_advice
from tests.support.device_comparisons import build_comparison
from tests.support.link_reports import build_link_report
from tests.support.manifests import build_manifest
from tests.support.plan_documents import build_document, build_option, build_plan
from tests.support.profile_reports import build_profile_report
from tests.unit.dashboards.test_training_run import record

ROOT = Path("/runs")
OPTIONS = (
    build_option(workers=2, batch=16, seconds=30.0),
    build_option(workers=4, batch=8, seconds=20.0),
    build_option(workers=4, batch=16, seconds=25.0),
)
PLAN = build_plan(workers=4, batch=8, seconds=20.0, examples=4000.0)
SWEEP = Sweep(
    plan=build_document(plan=PLAN, options=OPTIONS),
    step_times=None,
    examples_to_target=None,
    trial={"workload": "digits"},
    num_trials=12,
)
UNPLANNED = replace(SWEEP, plan=build_document(), trial={})


def build_experiment(kind, content=None, name="experiment", **changes):
    return Experiment(kind=kind, path=ROOT / name, content=content, modified=86400.0, **changes)


def outcome_of(kind, content):
    """Return the cells of a row after the time of writing, by column."""
    return dict(zip(INDEX_COLUMNS[1:], row_cells(build_experiment(kind, content)), strict=True))


def test_row_of_a_run():
    run = replace(record(), examples_to_target=450.0)
    assert row_cells(build_experiment("run", run)) == [
        *("run", TimeCell("1970-01-02 00:00"), "digits", run.config.workers, run.config.batch_size),
        *(
            NumberCell(0.05, "0.05"),
            "max examples",
            NumberCell(pytest.approx(0.25), "250 ms"),
            NumberCell(450.0, "450"),
        ),
    ]


def test_row_of_a_sweep_holds_its_plan():
    written, lr, time = TimeCell("1970-01-02 00:00"), NumberCell(0.1, "0.1"), NumberCell(20.0, "20 s, predicted")
    row = ["sweep", written, "digits", 4, 8, lr, "plan, not confirmed", time, NumberCell(4000.0, "4,000")]
    assert row_cells(build_experiment("sweep", SWEEP)) == row
    assert row_cells(build_experiment("sweep", UNPLANNED))[2:] == ["", None, None, None, "no plan", None, None]


def test_row_of_a_check_holds_its_verdict():
    drift = outcome_of("check", DatasetVerdict(state="drift", cause="blur", images=70))
    assert (drift["outcome"], drift["examples"], drift["workload"], drift["workers"]) == ("drift: blur", 70, "", None)
    assert outcome_of("check", DatasetVerdict(state="ok"))["outcome"] == "ok"


def test_row_of_a_bundle_holds_its_accuracy():
    bundle = outcome_of("bundle", build_manifest())
    assert (bundle["workload"], bundle["outcome"]) == ("pets", "published, accuracy 0.9000")
    assert bundle["training time"] is bundle["examples"] is None


def test_row_of_a_profile_holds_its_step():
    report = build_profile_report()
    cells = outcome_of("profile", report)
    assert (cells["workload"], cells["workers"], cells["batch"]) == ("digits", 2, 32)
    assert cells["outcome"] == "100 ms a step"  # without advice no loss is named
    assert outcome_of("profile", add_advice(report))["outcome"].startswith("100 ms a step, most for ")


@pytest.mark.parametrize(
    ("exchange", "words"), [(0.0, "2 workers pay at every batch"), (6e-3, "2 workers pay at no batch")]
)
def test_row_of_a_comparison_says_from_which_batch_on_workers_pay(exchange, words):
    assert outcome_of("comparison", build_comparison(exchange=exchange))["outcome"] == words
    cells = outcome_of("comparison", build_comparison())
    assert cells["workers"] == 2 and cells["outcome"].startswith("2 workers pay from a batch of ")


def test_row_of_links_says_the_slowest_level_and_the_fastest_algorithm():
    cells = outcome_of("links", build_link_report())
    assert cells["workers"] == 4 and cells["outcome"].startswith("192 Mbit/s between nodes, ")
    assert cells["outcome"].endswith(" the fastest for 16 MiB")


def test_row_of_an_unreadable_experiment_holds_the_begin_of_its_problem():
    cells = row_cells(build_experiment("run", problem="cannot read /runs/experiment/record.json: it is damaged"))
    assert cells[2:] == ["", None, None, None, "cannot read record.json", None, None]


def test_index_shows_no_path_of_the_machine():
    experiment = build_experiment("run", problem="cannot read /runs/experiment/record.json: it is damaged")
    page = build_index_page([experiment], ROOT, lambda _: None)
    assert "/runs" not in render_html(page) and "experiment: cannot read record.json: it is damaged" in render_html(
        page
    )
    assert comparison_entry(experiment)["facts"]["problem"] == "cannot read record.json: it is damaged"


@pytest.mark.parametrize(("seconds", "text"), [(0.0, "1970-01-01 00:00"), (1e20, ""), (float("nan"), "")])
def test_time_of_writing_is_in_utc_or_empty(seconds, text):
    assert format_modified(seconds) == text


def test_experiments_are_counted_by_kind():
    kinds = ["run", "sweep", "run", "?"]
    assert count_by_kind([build_experiment(kind) for kind in kinds]) == {"?": "1", "runs": "2", "sweeps": "1"}


def test_comparison_of_a_run_has_its_facts_and_curve():
    entry = comparison_entry(build_experiment("run", record()))
    assert entry["facts"]["workload"] == "digits"
    assert entry["curve"] == {"x": [200, 400], "y": [0.4, 0.8], "across": "examples seen", "up": "metric, validation"}


def test_curve_of_a_long_run_has_few_points_from_its_first_to_its_last():
    lap = record().laps[0]
    laps = [replace(lap, seen=100 * number, metric=number / 3000) for number in range(1, 200)]
    curve = metric_curve(replace(record(), laps=laps))
    assert len(curve["x"]) == len(curve["y"]) == MAX_CURVE_POINTS == 60
    assert (curve["x"][0], curve["x"][-1]) == (100, 19_900)
    assert curve["y"][0] == 0.00033333 and curve["y"][-1] == 0.066333


def test_run_without_evaluations_has_no_curve():
    assert metric_curve(replace(record(), laps=[])) is None
    negative = [replace(record().laps[0], metric=-0.5)]
    assert metric_curve(replace(record(), laps=negative))["y"] == [-0.5]
    assert metric_curve(replace(record(), laps=[replace(negative[0], metric=0.0)]))["y"] == [0.0]


def test_comparison_of_a_sweep_has_its_plan_and_its_fastest_settings():
    entry = comparison_entry(build_experiment("sweep", SWEEP))
    assert entry["facts"] == {
        "workload": "digits",
        "trials": "12",
        "plan": "not confirmed",
        "workers x batch": "4 x 8",
        "learning rate": "0.1",
        "time to the target": "20 (16 to 24) s",
        "worker-seconds": "80",
        "bound by": "compute",
    }
    assert entry["curve"] == {
        "x": [32, 64],
        "y": [20.0, 25.0],
        "across": "global batch, examples",
        "up": "seconds to the target",
    }


def test_sweep_without_plan_has_no_curve():
    assert sweep_facts(UNPLANNED) == {"workload": "-", "trials": "12", "plan": "none"}
    assert time_to_target_curve(UNPLANNED) is None


def test_comparison_of_other_kinds_has_the_cells_of_their_row():
    assert comparison_entry(build_experiment("check", DatasetVerdict(state="ok", images=70))) == {
        "facts": {
            "kind": "check",
            "written, UTC": "1970-01-02 00:00",
            "workload": "",
            "outcome": "ok",
            "examples": "70",
        }
    }
    assert comparison_entry(build_experiment("run", problem="damaged")) == {
        "facts": {"kind": "run", "problem": "damaged"}
    }


def test_index_links_to_the_pages_that_exist():
    experiments = [
        build_experiment("run", record(), "a b/ü"),
        build_experiment("run", name="damaged", problem="cannot be read"),
    ]
    page = build_index_page(experiments, ROOT, lambda one: "a b/ü.html" if one.content else None)
    assert page.title == "Experiments" and page.lead == "2 experiments below runs."
    everything, unreadable = page.sections
    counts, table = everything.parts
    assert counts.facts == {"runs": "2"}
    assert table.columns == INDEX_COLUMNS and table.row_labels == ["a b/ü", "damaged"]
    assert table.rows[0][0] == Link("a b/ü", "a%20b/%C3%BC.html")
    assert table.rows[1][0] == "damaged"
    assert all(len(row) == len(INDEX_COLUMNS) for row in table.rows)
    assert unreadable.title == "Incomplete or unreadable"
    (note,) = unreadable.parts
    assert (note.name, note.text) == ("wrong-1", "damaged: cannot be read")
    assert page.comparison_entries.keys() == {"a b/ü", "damaged"}


def test_index_of_readable_experiments_has_one_section():
    page = build_index_page([build_experiment("run", record())], ROOT, lambda _: None)
    assert [section.title for section in page.sections] == ["All experiments"]


def test_index_of_nothing_says_what_would_be_here():
    page = build_index_page([], ROOT, lambda _: None)
    ((note,),) = [section.parts for section in page.sections]
    assert "no runs or sweeps below runs yet" in note.text and "equipoise train" in note.text


def test_links_are_relative_to_the_folder_of_the_index(tmp_path):
    (tmp_path / "run").mkdir()
    experiment = Experiment(kind="run", path=tmp_path / "run")
    find_link = page_link_finder(tmp_path / "pages" / "index.html")
    assert find_link(experiment) is None
    (tmp_path / "run" / "run.html").write_text("")
    assert find_link(experiment) == "../run/run.html"
    assert experiment_name(experiment, tmp_path) == "run"


def test_curves_of_metrics_in_two_directions_are_not_compared():
    falling = metric_curve(replace(record(), lower_is_better=True))
    assert falling["up"] == "metric, validation (lower is better)" != metric_curve(record())["up"]


def test_small_metric_keeps_its_digits_in_a_curve():
    laps = [replace(record().laps[0], metric=1.23456e-7)]
    assert metric_curve(replace(record(), laps=laps))["y"] == [1.2346e-7]


def test_sweep_of_a_command_has_the_name_of_its_program():
    sweep = replace(SWEEP, trial={"workload": None, "command": "python train.py --lr {lr}"})
    assert outcome_of("sweep", sweep)["workload"] == sweep_facts(sweep)["workload"] == "train.py"
    assert sweep_facts(replace(SWEEP, trial={}))["workload"] == "-"
