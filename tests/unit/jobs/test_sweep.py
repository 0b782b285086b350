import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ray import tune

from equipoise.config import TrainConfig
from equipoise.planning.search import GridSearch
from equipoise.planning.step_time_fit import fit_step_time
from equipoise.runs.record import Lap, Record
from equipoise.storage.atomic import write_json
from jobs.cli.sweep_status import SweepStatus
from jobs.ray_tune.fastest_workers import FastestWorkers
from jobs.ray_tune.pace_drift import add_pace_noise, estimate_pace_drift
from jobs.ray_tune.step_timing import ExchangeTiming, StepTiming, load_timings, max_repeat_error
from jobs.ray_tune.trial_records import load_finished_trials
from jobs.ray_tune.tuner import DropMetricHistory, PendingTrialScheduler, SearchAdapter, SweepTrials
from jobs.sweep import SweepOptions


def asked(**more):
    return SweepOptions(workload="digits", out=Path("x"), **more)


def test_batches_are_octaves_and_no_global_batch_is_larger_than_the_training_split():
    assert asked(batch_size="8:100").batches_per_worker() == [8, 16, 32, 64]
    assert asked(workers=(2, 1, 2), batch_size="8:64").batches_by_workers(100) == {1: [8, 16, 32, 64], 2: [8, 16, 32]}
    assert asked(workers=(1, 20), batch_size="8:16").batches_by_workers(100) == {1: [8, 16]}


@pytest.mark.parametrize("batch", ["8", "64:8", "0:8", "a:b", "8:16:32"])
def test_a_range_of_batches_that_is_none_is_refused(batch):
    with pytest.raises(ValueError, match="batch-size must be MIN:MAX"):
        asked(batch_size=batch).batches_per_worker()


def test_batches_beyond_the_data_are_refused():
    with pytest.raises(ValueError, match="fits the 100 training examples"):
        asked(batch_size="128:512").batches_by_workers(100)


def test_a_rate_is_a_start_or_a_range():
    assert asked(lr="0.1").initial_lr_and_bounds()[0] == 0.1
    start, bounds = asked(lr="0.01:0.09").initial_lr_and_bounds()
    assert start == pytest.approx(0.03) and bounds == (0.01, 0.09)


@pytest.mark.parametrize("lr", ["0", "-1", "nan", "inf", "1:0.1", "a", "0.1:0.2:0.3", ""])
def test_a_rate_that_is_none_is_refused(lr):
    with pytest.raises(ValueError, match="lr must be"):
        asked(lr=lr).initial_lr_and_bounds()


@pytest.mark.parametrize("wrong", [{"workers": ()}, {"workers": (0, 1)}, {"budget_seconds": 0.0}, {"seeds": 0}])
def test_what_makes_no_sweep_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong)).replace("_", "-")):
        asked(**wrong).validate()


def test_trials_end_with_the_budget_but_get_their_part_of_it():
    sweep = asked(budget_seconds=100.0)
    assert sweep.trial_deadline(start=1000.0, now=1010.0) == 1100.0
    assert sweep.trial_deadline(start=1000.0, now=1070.0) == 1110.0


def test_the_fastest_workers_are_found_for_each_global_batch():
    rows = [
        (1, 1, 8, 0.010),
        (1, 1, 16, 0.018),
        (1, 2, 8, 0.013),
        (1, 2, 16, 0.016),
        (1, 1, 32, 0.034),
        (1, 2, 32, 0.026),
    ]
    timed = fit_step_time(pd.DataFrame(rows, columns=["nodes", "workers", "batch", "seconds"]))
    fastest = FastestWorkers(timed)
    assert fastest.workers_by_batch == {8: 1, 16: 2, 32: 2, 64: 2}
    assert fastest.step_seconds(8) == pytest.approx(0.010, rel=0.1)


def test_the_clocks_own_error_is_that_of_the_setting_timed_twice():
    row = StepTiming(nodes=1, workers=1, batch=8, seconds=0.010, data_seconds=0.0, exchange_seconds=0.0, pace_sd=0.1,
              gradient_bytes=4000)  # fmt: skip
    rows = pd.DataFrame([vars(row), vars(row) | {"seconds": 0.011, "repeat": True}])
    assert max_repeat_error(rows) == pytest.approx(0.1)
    assert max_repeat_error(rows[~rows["repeat"]]) is None


def test_a_damaged_ladder_is_named_and_what_to_do(tmp_path):
    row = {"nodes": 1, "workers": 1, "batch": 8, "seconds": 0.01, "data_seconds": 0.0, "exchange_seconds": 0.0}
    row |= {"pace_sd": 0.1, "gradient_bytes": 4000, "repeat": False}
    one = {"nodes": 2, "workers": 2, "kind": "sum", "bytes": 4096, "seconds": 0.001}
    whole = {"rows": [row], "too_large": [16], "exchanges": [one]}
    path = tmp_path / "workers-1.json"
    assert load_timings(path) == ([], [], [])
    path.write_text(json.dumps(whole))
    assert load_timings(path) == ([StepTiming(**row)], [16], [ExchangeTiming(**one)])
    wrong = [whole | {"rows": [row | {"seconds": -1}]}, whole | {"exchanges": [{"bytes": 1}]}]
    for damaged in ("{", "{}", "[]", "null", *map(json.dumps, wrong)):
        path.write_text(damaged)
        with pytest.raises(ValueError, match=r"workers-1\.json is damaged: remove it"):
            load_timings(path)


def trial_at(pace, batch, steps=40):
    lap = Lap(step=steps, steps=steps, seen=steps * batch, examples=steps * batch, workers=1, lr=0.1, loss=1.0,
              seconds=pace * steps, data_seconds=0.0, compute_seconds=pace * steps, exchange_seconds=0.0)  # fmt: skip
    first = replace(lap, seconds=10 * lap.seconds)  # its caches are empty
    return Record(
        config=TrainConfig(workload="digits", batch_size=batch),
        machine={},
        laps=[first, lap, lap],
        status="max_examples",
        target=0.9,
        examples_to_target=None,
        test=None,
    )


def test_a_machine_that_drifts_is_known_by_trials_of_the_same_batch():
    rng = np.random.default_rng(0)
    paces = [(batch / 1000 * np.exp(0.2 * rng.standard_normal()), batch) for batch in (8, 16, 64) for _ in range(100)]
    assert estimate_pace_drift([trial_at(*one) for one in paces]) == pytest.approx(0.2, rel=0.1)
    assert estimate_pace_drift(
        [trial_at(batch / 1000, batch) for batch in (8, 16, 64) for _ in range(3)]
    ) == pytest.approx(0)


def test_too_few_trials_tell_nothing_of_a_drift():
    assert estimate_pace_drift([]) == 0
    assert estimate_pace_drift([trial_at(0.1, 8), trial_at(0.2, 8), trial_at(0.1, 16)]) == 0


def test_a_drift_counts_when_the_steps_are_timed_and_again_when_they_are_trained():
    rows = pd.DataFrame({"seconds": [1.0], "pace_sd": [0.1]})
    assert add_pace_noise(rows, 0.2).pace_sd.tolist() == pytest.approx([0.3])


def test_a_damaged_trial_is_named_and_what_to_do(tmp_path):
    (tmp_path / "batch-8.json").write_text('{"schema": 1')
    with pytest.raises(ValueError, match=r"batch-8\.json is damaged: remove it, and the same command"):
        load_finished_trials(tmp_path, TrainConfig(workload="digits"))


@pytest.mark.parametrize("change", [{"workload": "vending"}, {"seed": 1}, {"lr": 0.1}, {"momentum": 0.5}])
def test_a_trial_of_something_else_is_named_and_not_counted(tmp_path, change):
    trial = TrainConfig(workload="digits", batch_size=8)
    path, one = tmp_path / "batch-8-lr-0.05-seed-0.json", trial_at(0.1, 8)
    write_json(path, one.to_json())
    assert len(load_finished_trials(tmp_path, trial)) == 1
    write_json(path, replace(one, config=replace(trial, **change)).to_json())
    with pytest.raises(ValueError, match=r"seed-0\.json holds another trial than its name says: remove it"):
        load_finished_trials(tmp_path, trial)


class Counted(GridSearch):
    """A grid that counts how often it looks at all trials."""

    looks = 0

    def rank_settings(self, finished):
        self.looks += 1
        return super().rank_settings(finished)


def test_records_of_an_earlier_command_are_looked_at_once_however_many(tmp_path):
    for seed in range(40):
        one = replace(trial_at(0.1, 8), config=TrainConfig(workload="digits", batch_size=8, seed=5 + seed))
        write_json(tmp_path / f"batch-8-lr-0.05-seed-{5 + seed}.json", one.to_json())
    write_json(tmp_path / "batch-4-lr-0.05-seed-0.json", trial_at(0.1, 4).to_json())
    grid = Counted([8, 16], 0.05, lambda batch: batch / 1000, num_seeds=50, lr_bounds=(0.05, 0.05))
    sweep = SweepTrials(
        base=TrainConfig(workload="digits", seed=5), folder=tmp_path, workers_by_batch={8: 1, 16: 1}, slots=2
    )
    policy = SearchAdapter(grid, sweep, SweepStatus(sweep.workers_by_batch, sweep.deadline))
    assert grid.looks == 1
    assert set(policy.finished_trials.seed) == set(range(40)) and set(policy.finished_trials.global_batch) == {8}
    asked = [policy.suggest(f"{k}")["trial"] for k in range(3)]
    assert [(one["batch_size"], one["seed"]) for one in asked] == [(16, 5), (16, 6), (16, 7)]


def test_what_tune_gathers_of_a_trial_goes_with_it():
    trial = tune.experiment.Trial("nothing", stub=True)
    trial.update_last_result({"seen": 64, "metric": 0.5, "trial_id": trial.trial_id, "training_iteration": 1})
    assert trial.metric_analysis and trial.metric_n_steps
    DropMetricHistory().on_trial_complete(1, [trial], trial)
    assert not trial.metric_analysis and not trial.metric_n_steps
    assert trial.last_result["seen"] == 64


class Controller:
    """What Tune's scheduler asks: the trials that have not ended, and none of the others."""

    def __init__(self, *live):
        self.live = set(live)

    def get_live_trials(self):
        return self.live


def test_the_next_trial_is_looked_for_among_those_that_have_not_ended():
    waiting, running = (tune.experiment.Trial("nothing", stub=True) for _ in range(2))
    running.set_status(running.RUNNING)
    assert PendingTrialScheduler().choose_trial_to_run(Controller(running, waiting)) is waiting
    assert PendingTrialScheduler().choose_trial_to_run(Controller(running)) is None
