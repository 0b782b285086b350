"""The confirmation run against the predictions of its plan."""

from dataclasses import replace

import pandas as pd
import pytest

from equipoise.planning.build_document import read_request
from equipoise.planning.confirmation import ConfirmationResult
from equipoise.planning.document import PlanDocument
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.replanning.folder_tables import read_sweep_request
from equipoise.planning.replanning.refuting_runs import add_refuting_runs
from jobs.ray_tune.confirmation import (
    check_prediction,
    compare_with_plan,
    find_confirmation_folder,
    load_refuting_runs,
    write_plan,
)
from tests.support.demo_records import PLAN
from tests.support.sweep_folders import SETUP, write_sweep_folder
from tests.unit.dashboards.test_training_run import record


def test_seconds_to_the_target_are_those_until_its_examples():
    run = replace(record(), status="reached_target", examples_to_target=400.0)  # of 500, in 5 laps of 10 steps
    plan = replace(PLAN, seconds=IntervalEstimate(value=0.2, low=0.19, high=0.21), examples=500.0)
    confirmation = compare_with_plan(run, plan)
    assert confirmation.seconds == pytest.approx(0.2) and confirmation.inside
    assert confirmation.examples.ratio == pytest.approx(0.8)
    assert confirmation.step.value == pytest.approx(0.005)
    assert confirmation.step.ratio == pytest.approx(0.005 / plan.step.seconds)
    assert confirmation.status == "confirmed"


@pytest.mark.parametrize(("low", "high", "status"), [(0.25, 0.4, "confirmed"), (0.1, 0.15, "refuted")])
def test_faster_run_confirms_a_plan_and_a_slower_one_refutes_it(low, high, status):
    run = replace(record(), status="reached_target", examples_to_target=400.0)
    confirmation = compare_with_plan(run, replace(PLAN, seconds=IntervalEstimate(value=low, low=low, high=high)))
    assert not confirmation.inside and confirmation.status == status


def test_run_that_missed_the_target_refutes_its_plan():
    confirmation = compare_with_plan(record(), PLAN)
    assert confirmation.seconds is None and confirmation.status == "refuted"
    assert confirmation.examples.value == 500


def test_run_that_failed_in_its_first_lap_refutes_its_plan():
    confirmation = compare_with_plan(replace(record(), laps=[], status="failed", reason="the loss was nan"), PLAN)
    assert confirmation.status == "refuted" and confirmation.step is None
    assert confirmation.outcome == "failed: the loss was nan"


def build_refuting_run(plan, seconds, step_ratio=1.0):
    """Build a run with the settings of a plan that took this long, or missed the target if None."""
    return ConfirmationResult(
        nodes=plan.nodes,
        workers=plan.workers,
        batch=plan.batch,
        lr=plan.lr,
        seed=1000,
        outcome="max examples" if seconds is None else "reached target",
        seconds=seconds,
        predicted=plan.seconds,
        inside=seconds is not None and plan.seconds.includes(seconds),
        examples=check_prediction(3 * plan.examples, plan.examples),
        step=check_prediction(step_ratio * plan.step.seconds, plan.step.seconds),
    )


def test_setting_that_missed_the_target_is_not_planned_with_again(tmp_path):
    folder = write_sweep_folder(tmp_path / "swept")
    refuted, settings = [], set()
    for count in range(1, 4):
        plan = PlanDocument.read(folder / "plan.json").plan
        assert (plan.global_batch, plan.lr) not in settings
        settings.add((plan.global_batch, plan.lr))
        refuted.append(build_refuting_run(plan, None))
        write_plan(folder, SETUP, refuted)
        assert len(load_refuting_runs(folder, SETUP)) == count


def test_runs_of_another_recipe_refute_nothing(tmp_path):
    folder, lamb = write_sweep_folder(tmp_path / "swept"), replace(SETUP, recipe="lamb")
    plan = PlanDocument.read(folder / "plan.json").plan
    write_plan(folder, lamb, [build_refuting_run(plan, None)])
    assert len(load_refuting_runs(folder, lamb)) == 1 and load_refuting_runs(folder, SETUP) == []
    assert find_confirmation_folder(folder, lamb) == folder / "confirm" / "lamb"
    for name in (None, "plain"):
        assert find_confirmation_folder(folder, replace(SETUP, recipe=name)) == folder / "confirm"


def test_plan_of_a_sweep_has_energies_that_were_measured_or_assumed(tmp_path):
    folder = write_sweep_folder(tmp_path / "swept")
    assert PlanDocument.read(folder / "plan.json").plan.joules is None
    assumed = write_plan(folder, SETUP, watts=40.0)
    assert assumed.plan.joules == pytest.approx(40 * assumed.plan.worker_seconds)
    assert any("assuming 40 W a worker" in warning for warning in assumed.warnings) and assumed.energy_front
    steps = pd.read_csv(folder / "system.csv")
    steps.assign(joules=30 * steps.workers * steps.seconds).to_csv(folder / "system.csv", index=False)
    assert write_plan(folder, SETUP).plan.joules == pytest.approx(30 * assumed.plan.worker_seconds, rel=0.02)


def test_slower_run_is_one_more_observation(tmp_path):
    folder = write_sweep_folder(tmp_path / "swept")
    before = PlanDocument.read(folder / "plan.json")
    run = build_refuting_run(before.plan, 3 * before.plan.seconds.value, step_ratio=2.0)
    after = write_plan(folder, SETUP, [run])

    def find_option(document):
        return next(
            option
            for option in document.options
            if (option.workers, option.batch) == (before.plan.workers, before.plan.batch)
        )

    assert find_option(after).step.seconds > 1.2 * find_option(before).step.seconds
    assert find_option(after).examples > find_option(before).examples
    assert after.status == "not confirmed" and after.confirmations == (run,)


def test_runs_on_workers_that_are_no_longer_asked_for_are_left_out(tmp_path):
    folder = write_sweep_folder(tmp_path / "swept")
    plan = PlanDocument.read(folder / "plan.json").plan
    run = replace(build_refuting_run(plan, 3 * plan.seconds.value), workers=max(64, 2 * plan.workers))
    request = read_sweep_request(folder)
    assert add_refuting_runs(request, [run]) is request
    counted = add_refuting_runs(request, [run, build_refuting_run(plan, None)])
    assert len(counted.system) == len(request.system) + 1 and len(counted.statistical) == len(request.statistical) + 1
    for missing in ({"system": None}, {"statistical": None}):
        part = replace(request, **missing)
        assert add_refuting_runs(part, [build_refuting_run(plan, None)]) is part


def test_no_plan_is_left_when_all_settings_missed_the_target(tmp_path):
    folder = write_sweep_folder(tmp_path / "swept")
    document = PlanDocument.read(folder / "plan.json")
    settings = read_request(statistical=folder / "statistical.csv").statistical[["global_batch", "lr"]]
    runs = [
        replace(build_refuting_run(option, None), lr=lr)
        for batch, lr in settings.drop_duplicates().itertuples(index=False)
        for option in document.options
        if option.global_batch == batch
    ]
    while document.plan:  # with a learning rate between those of the trials
        runs.append(build_refuting_run(document.plan, None))
        assert len(runs) < 100
        document = write_plan(folder, SETUP, runs)
    assert document.plan is None and any("missed the target" in warning for warning in document.warnings)
