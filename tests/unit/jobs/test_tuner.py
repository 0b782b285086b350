"""Ray Tune gets the trials that the search chooses, keeps little of them, and stops them when the time is up."""

import time
from dataclasses import replace

from ray import tune

from equipoise.config import TrainConfig
from equipoise.planning.search import GridSearch
from equipoise.storage.atomic import write_json
from jobs.cli.sweep_status import SweepStatus
from jobs.ray_tune.scheduling.deadline_scheduler import DeadlineScheduler, TimeReserve
from jobs.ray_tune.tuner import DropMetricHistory, SearchAdapter, SweepTrials
from tests.support.trial_records import build_record


class CountingGridSearch(GridSearch):
    """Grid search that counts how often it ranks all trials."""

    rank_calls = 0

    def rank_settings(self, finished):
        self.rank_calls += 1
        return super().rank_settings(finished)


def test_earlier_records_are_ranked_only_once(tmp_path):
    for seed in range(40):
        record = replace(build_record(0.1, 8), config=replace(build_record(0.1, 8).config, seed=5 + seed))
        write_json(tmp_path / f"batch-8-lr-0.05-seed-{5 + seed}.json", record.to_json())
    write_json(tmp_path / "batch-4-lr-0.05-seed-0.json", build_record(0.1, 4).to_json())
    grid = CountingGridSearch([8, 16], 0.05, lambda batch: batch / 1000, num_seeds=50, lr_bounds=(0.05, 0.05))
    sweep_trials = SweepTrials(
        base=TrainConfig(workload="digits", seed=5).with_defaults(),
        folder=tmp_path,
        workers_by_batch={8: 1, 16: 1},
        slots=2,
    )
    adapter = SearchAdapter(grid, sweep_trials, SweepStatus(sweep_trials.workers_by_batch, sweep_trials.deadline))
    assert grid.rank_calls == 1
    assert set(adapter.finished_trials.seed) == set(range(40)) and set(adapter.finished_trials.global_batch) == {8}
    suggested = [adapter.suggest(f"{k}")["trial"] for k in range(3)]
    assert [(trial["batch_size"], trial["seed"]) for trial in suggested] == [(16, 5), (16, 6), (16, 7)]


def test_metric_history_is_dropped_when_a_trial_ends():
    trial = tune.experiment.Trial("nothing", stub=True)
    trial.update_last_result({"seen": 64, "metric": 0.5, "trial_id": trial.trial_id, "training_iteration": 1})
    assert trial.metric_analysis and trial.metric_n_steps
    DropMetricHistory().on_trial_complete(1, [trial], trial)
    assert not trial.metric_analysis and not trial.metric_n_steps
    assert trial.last_result["seen"] == 64


class LiveTrialsController:
    """Controller for Tune's scheduler that knows only the trials that have not ended."""

    def __init__(self, *live_trials):
        self.live_trials, self.stopped_trials = set(live_trials), []

    def stop_trial(self, trial):
        self.live_trials.remove(trial)
        self.stopped_trials.append(trial)

    def get_live_trials(self):
        return self.live_trials


def test_next_trial_is_chosen_from_the_live_ones():
    pending, running = (tune.experiment.Trial("nothing", stub=True) for _ in range(2))
    running.set_status(running.RUNNING)
    scheduler = DeadlineScheduler(lambda: False)
    assert scheduler.choose_trial_to_run(LiveTrialsController(running, pending)) is pending
    assert scheduler.choose_trial_to_run(LiveTrialsController(running)) is None


def test_all_trials_are_stopped_when_the_time_is_up():
    pending, running = (tune.experiment.Trial("nothing", stub=True) for _ in range(2))
    running.set_status(running.RUNNING)
    controller = LiveTrialsController(running, pending)
    assert DeadlineScheduler(lambda: False).choose_trial_to_run(controller) is pending
    assert not controller.stopped_trials
    assert DeadlineScheduler(lambda: True).choose_trial_to_run(controller) is None
    assert set(controller.stopped_trials) == {pending, running} and not controller.live_trials


def test_trials_go_on_into_the_reserve_where_nothing_else_needs_it(tmp_path):
    for is_needed in (True, False):
        asked = []
        reserve = TimeReserve(
            time.time() + 60, lambda runs, asked=asked, answer=is_needed: asked.append(runs) or answer
        )
        sweep_trials = SweepTrials(
            base=TrainConfig(workload="digits").with_defaults(), folder=tmp_path, workers_by_batch={8: 1}, slots=1,
            deadline=time.time() - 1, reserve=reserve,
        )  # fmt: skip
        grid = GridSearch([8], 0.05, lambda batch: batch / 1000, num_seeds=1)
        adapter = SearchAdapter(grid, sweep_trials, SweepStatus({8: 1}, sweep_trials.deadline))
        assert [adapter.time_is_up() for _ in range(2)] == [is_needed] * 2 and len(asked) == 1
        assert (sweep_trials.deadline == reserve.deadline) != is_needed and sweep_trials.reserve is None
