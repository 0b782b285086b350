"""Pages of sweeps say what the plan is, why, how sure it is, and how its confirmation run went."""

from dataclasses import replace

import pandas as pd
import pytest

from dashboards.experiments import Experiment, Sweep
from dashboards.page import Note, NumberCell
from dashboards.reports import (
    build_page,
    fit_fact_lists,
    format_error,
    plan_fact_lists,
    plan_paragraphs,
    tradeoff_page,
    trials_table,
    warning_notes,
    write_pages,
)
from equipoise.drift.diagnosis.verdict import DatasetVerdict
from tests.support.plan_documents import (
    build_document,
    build_examples,
    build_option,
    build_plan,
    build_step_prediction,
    build_step_times,
)
from tests.support.sweep_folders import SETUP
from tests.unit.dashboards.test_training_run import record

PLAN = build_plan(workers=4, batch=32, seconds=100.0, nodes=2, lr=0.125)


def build_sweep(**parts):
    return Sweep(**{"plan": build_document(), "step_times": None, "examples_to_target": None} | parts)


def build_trials(count):
    return [replace(record(), config=replace(record().config, seed=seed)) for seed in range(count)]


def test_plan_is_described_by_its_status_interval_cost_and_reason():
    assert plan_paragraphs(build_document(plan=PLAN)) == [
        "Not confirmed: no training run has been made with this plan yet.",
        "Train on 4 workers on 2 nodes with 32 examples each at a learning rate of 0.125: predicted 100 s (80 to 120 s)"
        " to the target, at a cost of 400 worker-seconds. In brackets is the 80 % interval.",
        "Reason: it is the fastest.",
    ]


def test_runner_up_follows_the_plan():
    runner_up = build_plan(nodes=2, workers=8, batch=64, seconds=110.0, lr=None)
    *_, last = plan_paragraphs(build_document(plan=PLAN, runner_up=runner_up))
    assert last == "Runner-up: 8 workers on 2 nodes with 64 examples each, predicted 110 s (88 to 130 s) to the target."


def test_plan_without_learning_rate_names_none():
    assert "learning rate" not in " ".join(plan_paragraphs(build_document(plan=replace(PLAN, lr=None))))


def test_warnings_are_notes_with_names_of_their_own():
    document = build_document(warnings=("measure more", "measure longer"))
    assert warning_notes(document) == [
        Note(name="note-0", text="Measure more"),
        Note(name="note-1", text="Measure longer"),
    ]
    assert plan_paragraphs(document) == ["There is no plan: the notes below say what is missing."]


def test_fits_are_given_with_their_interval_and_only_if_there_are_some():
    (fits,) = plan_fact_lists(build_document(statistical=build_examples()))
    assert fits.facts == {
        "critical batch": "100 (80 to 120) examples",
        "fewest examples to the target": "5,000 (4,000 to 6,000) examples",
    }
    assert plan_fact_lists(build_document()) == []


def test_parameters_of_a_step_are_times_but_for_the_overlap():
    parameters = {"a": 0.002, "c": 1e-4, "g": 1.234567, "new": 2.0}
    system = build_step_times(parameters=parameters, missing=("2 nodes", "4 nodes"))
    facts, *missing = fit_fact_lists(build_document(system=system))
    assert facts.facts == {
        "fixed time of a step": "2 ms",
        "additional time per example": "100 us",
        "overlap exponent (1: no overlap)": "1.23",
        "new": "2 s",
        "mean error of the fit": "3%",
    }
    assert missing == [
        Note(name="missing-0", text="To predict further, measure 2 nodes."),
        Note(name="missing-1", text="To predict further, measure 4 nodes."),
    ]
    assert fit_fact_lists(build_document()) == []
    assert [format_error(share) for share in (0.009, 0.01, 0.256)] == ["below 1%", "1%", "26%"]


def test_trials_are_listed_with_their_latest_metric():
    first, second = build_trials(2)
    first = replace(first, laps=[replace(lap, metric=lap.seen / 1000) for lap in first.laps])
    second = replace(second, laps=[], status="failed")
    quick = replace(second, examples_to_target=300.0, status="reached_target")
    table = trials_table([second, first, quick])
    batch, lr = first.config.global_batch, NumberCell(0.05, "0.05")
    assert table.columns == ["global batch", "lr", "seed", "status", "examples", "metric"]
    assert trials_table([replace(first, metric_name="mAP")]).columns[-1] == "mAP"
    assert trials_table([]).rows == []
    assert table.rows == [
        [batch, lr, "1", "reached target", 0, None],  # the best first
        [batch, lr, "1", "failed", 0, None],
        [batch, lr, "0", "max examples", 500, 0.5],
    ]


def test_page_of_a_sweep_has_a_section_for_each_panel():
    options = (build_option(workers=4, batch=32, seconds=100.0),)
    document = build_document(
        plan=PLAN,
        front=options,
        options=options,
        warnings=("measure more",),
        system=build_step_times(build_step_prediction(4, 32, 0.1)),
    )
    trials = pd.DataFrame([(128, 0.1, 0, 5000.0, 1)], columns=["global_batch", "lr", "seed", "examples", "reached"])
    step_times = pd.DataFrame([(1, 4, 10, 2.0)], columns=["nodes", "workers", "batch", "seconds"])
    sweep = build_sweep(
        plan=document,
        step_times=step_times,
        examples_to_target=trials,
        trial={"workload": "digits"},
        num_trials=1,
        unfinished_trials=build_trials(1),
    )
    page = tradeoff_page(sweep, "nightly")
    assert page.title == "Trade-off: nightly"
    assert page.lead == "Trade-off between speed and cost of digits, from 1 trial."
    assert [link.href for link in page.links] == ["scaling.html"]
    assert [section.title for section in page.sections] == [
        "The plan",
        "Time per example, examples to the target, and their product",
        "Time against cost",
        "Workers and batch size",
        "Learning rates",
        "Trials so far",
    ]
    assert [part.name for part in page.sections[0].parts] == ["note-0"]
    curves = next(page.iter_panels()).figure
    measured = next(trace for trace in curves.data if trace.mode == "markers")
    assert (measured.name, list(measured.y)) == ("4 workers", [pytest.approx(50)])
    assert [list(trace.y) for trace in curves.data if trace.name == "trials"] == [[5000]]


def test_page_of_a_plan_without_sweep_counts_no_trials():
    page = tradeoff_page(build_sweep(), "plan")
    assert page.lead == "Trade-off between speed and cost of measurements."
    assert [section.title for section in page.sections] == ["The plan"]


def test_page_of_a_sweep_names_its_target_and_metric():
    setup = replace(SETUP, target=0.5, metric_name="mAP")
    page = tradeoff_page(build_sweep(plan=build_document(setup=setup), trial={"workload": "shelf"}), "own")
    assert page.lead == "Trade-off between speed and cost of shelf, with a target of at least 0.5 mAP."


def test_page_is_that_of_the_contents(tmp_path):
    pages = {
        ("run", "run"): record(),
        ("sweep", "curve"): build_sweep(),
        ("sweep", "scaling"): build_sweep(),
        ("check", "drift"): DatasetVerdict(state="ok"),
    }
    titles = {
        name: build_page(Experiment(kind=kind, path=tmp_path, content=content), name).title.partition(":")[0]
        for (kind, name), content in pages.items()
    }
    assert titles == {"run": "digits", "curve": "Trade-off", "scaling": "Scaling", "drift": "Images"}
    assert build_page(Experiment(kind="sweep", path=tmp_path, content=build_sweep()), "curve").title.endswith(
        tmp_path.name
    )


def test_bundles_and_unknown_folders_have_no_pages(tmp_path):
    assert write_pages(Experiment(kind="bundle", path=tmp_path)) == []
    assert write_pages(Experiment(kind="?", path=tmp_path)) == []
    check = Experiment(kind="check", path=tmp_path, content=DatasetVerdict(state="ok"))
    assert write_pages(check) == [tmp_path / "drift.html"]
    assert (tmp_path / "drift.html").read_text().startswith("<!doctype html>")
