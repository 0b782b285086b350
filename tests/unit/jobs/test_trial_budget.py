from dataclasses import replace

import pandas as pd
import pytest

from equipoise.planning.step_time_fit import fit_step_time
from equipoise.storage.atomic import write_json
from jobs.ray_tune.trial_budget import find_affordable_batches, require_finished_trials, trial_step_seconds
from tests.support.errors import raises_code
from tests.unit.planning.test_sweep_budget import build_trial


def test_trial_computes_the_whole_global_batch_on_one_worker():
    rows = [(1, n, batch, 0.01 + 0.001 * batch) for n in (1, 2) for batch in (8, 16, 32, 64)]
    fit = fit_step_time(pd.DataFrame(rows, columns=["nodes", "workers", "batch", "seconds"]))
    seconds = trial_step_seconds(fit, [8, 128])
    assert seconds[8] == pytest.approx(0.018, rel=0.1)
    assert seconds[128] == pytest.approx(0.138, rel=0.1)


def test_batches_are_affordable_with_time_for_twenty_steps():
    assert find_affordable_batches({8: 0.1, 16: 0.2, 32: 0.4}, 4.0, 1000) == [8, 16]


def test_budget_without_time_for_any_batch_is_refused_with_one_that_would_do():
    with raises_code("budget-too-small", "a step of 8 examples takes 3 s", "10 s are left", "--budget-seconds 9400"):
        find_affordable_batches({8: 3.0, 16: 6.0}, 10.0, 1000)


def write_trials(folder, *trials):
    for index, trial in enumerate(trials):
        write_json(folder / f"{index}.json", trial.to_json())


def table(*reached):
    return pd.DataFrame({"reached": reached}, dtype=int)


def test_finished_trials_make_a_plan(tmp_path):
    require_finished_trials(table(1, 0), tmp_path, 30.0)
    require_finished_trials(table(0, 0), tmp_path, 30.0)  # not for lack of time
    write_trials(tmp_path, build_trial(0.3))
    require_finished_trials(table(1, 0), tmp_path, 30.0)


@pytest.mark.parametrize(
    ("reached", "said"),
    [((), "no trial ended"), ((1,), "one trial ended and two are needed"), ((0, 0), "none of the 2 trials")],
)
def test_too_few_trials_are_refused_with_their_progress_and_a_budget(tmp_path, reached, said):
    write_trials(tmp_path, build_trial(0.3, 0.6), build_trial(0.1), replace(build_trial(), status="failed"))
    with raises_code(
        "budget-too-small", said, "within 30 s", "came to 0.6 of 0.9 in 200 examples", "--budget-seconds 150"
    ):
        require_finished_trials(table(*reached), tmp_path, 30.0)


def test_too_few_trials_with_time_left_need_more_settings(tmp_path):
    with raises_code("measurements-missing", "one trial ended", "more batch sizes or seeds"):
        require_finished_trials(table(1), tmp_path, float("inf"))
