import math
from dataclasses import replace

import pandas as pd
import pytest

from equipoise.planning.step_time_fit import fit_step_time
from equipoise.storage.atomic import write_json
from jobs.ray_tune.trial_budget import (
    describe_best_progress,
    describe_trials,
    describe_unaffordable_batches,
    find_affordable_batches,
    require_finished_trials,
    single_worker_step_seconds,
)
from tests.support.errors import raises_code
from tests.unit.planning.test_sweep_budget import build_falling_trial, build_trial


def test_trial_computes_the_whole_global_batch_on_one_worker():
    rows = [(1, n, batch, 0.01 + 0.001 * batch) for n in (1, 2) for batch in (8, 16, 32, 64)]
    fit = fit_step_time(pd.DataFrame(rows, columns=["nodes", "workers", "batch", "seconds"]))
    seconds = single_worker_step_seconds(fit, [8, 128])
    assert seconds[8] == pytest.approx(0.018, rel=0.1)
    assert seconds[128] == pytest.approx(0.138, rel=0.1)


def test_batches_are_affordable_with_time_for_twenty_steps_or_with_finished_trials():
    step_seconds = {8: 0.1, 16: 0.2, 32: 0.4, 64: 0.8}
    assert find_affordable_batches(step_seconds, 4.0, 1000, 2) == [8, 16]
    assert find_affordable_batches(step_seconds, 4.0, 1000, 2, {64, 128}) == [8, 16, 64]
    assert find_affordable_batches(step_seconds, -1.0, 1000, 2, {64}) == [64]


def test_batches_that_are_left_out_are_named():
    step_seconds = {8: 0.1, 16: 0.2, 32: 0.4}
    assert describe_unaffordable_batches(step_seconds, [8, 16, 32]) == ""
    assert describe_unaffordable_batches(step_seconds, [8]) == (
        "no trials for lack of time: global batches 16, 32; 20 steps of 16 take about 4 s"
    )


@pytest.mark.parametrize(("concurrent_trials", "budget"), [(2, 9500), (1, 19000)])
def test_budget_without_time_for_any_batch_is_refused_with_one_that_would_do(concurrent_trials, budget):
    said = ("a step of 8 examples takes 3 s", "10 s are left", f"--budget-seconds {budget}")
    with raises_code("budget-too-small", *said):
        find_affordable_batches({8: 3.0, 16: 6.0}, 10.0, 1000, concurrent_trials)


def test_time_that_is_over_is_not_negative():
    with raises_code("budget-too-small", " 0 s are left"):
        find_affordable_batches({8: 3.0}, -10.0, 1000, 1)


def write_trials(folder, *trials):
    for index, trial in enumerate(trials):
        write_json(folder / f"{index}.json", trial.to_json())


def table(*reached):
    return pd.DataFrame({"reached": reached}, dtype=int)


def test_finished_trials_make_a_plan(tmp_path):
    require_finished_trials(table(1, 0), tmp_path, 30.0, 2, time_is_up=True)
    require_finished_trials(table(0, 0), tmp_path, 30.0, 2, time_is_up=False)
    write_trials(tmp_path, build_trial(0.3))
    require_finished_trials(table(1, 0), tmp_path, 30.0, 2, time_is_up=True)
    require_finished_trials(
        table(0, 0), tmp_path, math.inf, 2, time_is_up=False
    )  # records of an earlier command with a budget


@pytest.mark.parametrize(
    ("reached", "said"),
    [((), "no trial ended"), ((1,), "one trial ended and two are needed"), ((0, 0), "none of the 2 trials")],
)
@pytest.mark.parametrize("status", ["cut_off", "running"])
def test_too_few_trials_are_refused_with_their_progress_and_a_budget(tmp_path, reached, said, status):
    stopped = replace(build_trial(0.3, 0.6), status=status)
    write_trials(tmp_path, stopped, build_trial(0.1), replace(build_trial(), status="failed"))
    progress = "the best trial reached a metric of 0.6 after 200 examples (target at least 0.9)"
    with raises_code("budget-too-small", said, "within 30 s", progress, "--budget-seconds 190"):
        require_finished_trials(table(*reached), tmp_path, 30.0, 2, time_is_up=True)


def test_trials_that_end_without_the_target_are_told_with_what_to_change(tmp_path):
    write_trials(tmp_path, *[replace(build_trial(0.3, metric), status="max_examples") for metric in (0.7, 0.5)])
    assert describe_trials(table(0, 0), tmp_path) == (
        "2 trials, 0 of them reached the target;"
        " the best trial reached a metric of 0.7 after 200 examples (target at least 0.9);"
        " give a --target that is easier to reach, more --max-examples or other --lr"
    )
    assert describe_trials(table(1, 0), tmp_path) == "2 trials, 1 of them reached the target"
    write_trials(tmp_path, replace(build_trial(0.2), status="cut_off"))
    with raises_code("budget-too-small", "a metric of 0.5", "the end of their examples (1): a --target that is easier"):
        require_finished_trials(table(0, 0), tmp_path, 30.0, 2, time_is_up=True)
    write_trials(tmp_path, build_trial(None))
    assert "0.5" in describe_trials(table(0), tmp_path)


def test_best_progress_is_the_best_metric_in_its_direction():
    assert describe_best_progress([]) == describe_best_progress([build_trial(None)]) == ""
    rising = describe_best_progress([build_trial(0.3, 0.6, 0.5), build_trial(0.4, None, 0.6)])
    assert rising == "; the best trial reached a metric of 0.6 after 200 examples (target at least 0.9)"
    falling = describe_best_progress([build_falling_trial(2.2, 0.5, 0.7), build_falling_trial(2.5)])
    assert falling == "; the best trial reached a metric of 0.5 after 200 examples (target at most 0.2)"


def test_too_few_trials_with_time_left_need_more_settings(tmp_path):
    with raises_code("measurements-missing", "one trial ended", "more batch sizes"):
        require_finished_trials(table(1), tmp_path, float("inf"), 2, time_is_up=False)


def test_budget_that_was_over_before_a_trial_began_is_refused_with_a_larger_one(tmp_path):
    with raises_code("budget-too-small", "no trial ended within 18 s", "--budget-seconds 130"):
        require_finished_trials(table(), tmp_path, 18.0, 2, time_is_up=True)


def test_failed_trials_are_named_with_the_first_reason(tmp_path):
    write_trials(tmp_path, replace(build_trial(0.5), status="failed", reason="the metric was nan"))
    line = describe_trials(table(0, 1), tmp_path)
    assert line == "2 trials, 1 of them reached the target, 1 failed, one because the metric was nan"
