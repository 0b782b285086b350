"""Search of a sweep through Ray Tune: our policy decides which trial runs next and which one stops early.

The records of the trials are its state: after a crash, the next driver reads them.
"""

import atexit
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd
from ray import tune
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.search import Searcher

from equipoise.config import TrainConfig
from equipoise.planning.search import Search, SettingResult, Suggestion, should_prune
from equipoise.runs.folder import read_record
from equipoise.runs.record import Record, mean_noise_scale
from equipoise.storage.atomic import write_json
from equipoise.storage.object_store import RemotePath
from equipoise.type_aliases import JsonObject
from jobs.cli.sweep_status import SweepStatus
from jobs.cluster.resources import worker_resources
from jobs.ray_tune.multi_worker_trial import LAUNCHER_RESOURCES, release_placement_group, run_multi_worker_trial
from jobs.ray_tune.scheduling.deadline_scheduler import DeadlineScheduler, TimeReserve
from jobs.ray_tune.scheduling.search_file import write_search_progress
from jobs.ray_tune.single_worker_trial import SingleWorkerTrial, build_trial_config
from jobs.ray_tune.trial_messages import TrialMetrics, TrialWorkerConfig
from jobs.ray_tune.trial_records import (
    FINISHED_TRIAL_COLUMNS,
    load_finished_trials,
    mark_cut_off,
    read_stopped_trials,
    record_to_row,
    trial_file_stem,
)

RECIPE_TRIALS_FOLDER = "recipes"  # in the folder of the plain trials
STOP_SECONDS = "10"  # until the process of a stopped trial is killed: Ray's minimum; a step may take minutes


@dataclass(kw_only=True)
class SweepTrials:
    """Trials of a sweep: where their records are, how each runs, and until when."""

    base: TrainConfig
    folder: Path
    workers_by_batch: dict[int, int]
    """number of workers that is fastest with each global batch"""
    slots: int
    """number of single-worker trials that run at a time"""
    gpu: bool = False
    real_workers: bool = False
    """run each trial on all of its workers, not on one worker that stands for them"""
    max_unsplit_batch: int = 0
    """largest global batch that one worker may process at once"""
    deadline: float = float("inf")
    """Unix time at which running trials are stopped"""
    reserve: TimeReserve | None = None
    """time after `deadline`, until it is known whether it is needed"""
    train_seconds: float = field(default=0.0, init=False)
    """seconds that trials spent training and evaluating"""
    total_trial_seconds: float = field(default=0.0, init=False)
    """seconds from the suggestion of each trial to its end, without the start of its process"""
    startup_seconds: float = field(default=0.0, init=False)
    """seconds in which the processes of trials started"""

    @property
    def concurrent_trials(self) -> int:
        """Number of trials that run at a time."""
        workers_per_trial = max(self.workers_by_batch.values()) if self.real_workers else 1
        return max(1, self.slots // workers_per_trial)

    def build_trial(self, suggestion: Suggestion) -> TrainConfig:
        """Build the options of the trial that the search suggests."""
        seed = self.base.seed + suggestion.seed
        setting = (suggestion.global_batch, suggestion.lr, seed)
        return build_trial_config(
            self.base,
            setting,
            self.workers_by_batch[suggestion.global_batch],
            self.real_workers,
            self.max_unsplit_batch,
        )

    def record_path(self, suggestion: Suggestion) -> Path:
        """Return the path of the record of a suggested trial."""
        return self.folder / f"{trial_file_stem(self.build_trial(suggestion))}.json"

    def build_worker_config(self, suggestion: Suggestion) -> TrialWorkerConfig:
        """Build what the process of a suggested trial has to know."""
        path = str(self.record_path(suggestion))
        return TrialWorkerConfig(trial=self.build_trial(suggestion), path=path, gpu=self.gpu)

    def build_tuner(
        self, search_adapter: "SearchAdapter", stopper: tune.Stopper | None, callbacks: list[tune.Callback]
    ) -> tune.Tuner:
        """Build the Ray Tune tuner that runs the trials of the search."""
        os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # the new output prints its own table even when silenced
        os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # three files per trial that nobody reads
        logging.getLogger("ray.tune.analysis.experiment_analysis").setLevel(
            logging.ERROR
        )  # it warns that these files are missing
        os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "inf")  # the records are the state; Tune's is never read
        os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")  # Ctrl-C ends the sweep, not the search alone
        if self.real_workers:
            trainable = tune.with_resources(run_multi_worker_trial, LAUNCHER_RESOURCES)
        else:
            trainable = tune.with_resources(SingleWorkerTrial, worker_resources(self.base.threads, self.gpu))
        os.environ.setdefault("TUNE_FORCE_TRIAL_CLEANUP_S", STOP_SECONDS)
        is_remote = isinstance(self.folder, RemotePath)
        return tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                search_alg=search_adapter,
                scheduler=DeadlineScheduler(search_adapter.time_is_up),
                num_samples=-1,
                max_concurrent_trials=self.concurrent_trials,
                reuse_actors=not self.real_workers,
                trial_name_creator=tune_trial_name,
                trial_dirname_creator=tune_trial_name,
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=str(create_temporary_tune_folder() if is_remote else self.folder.parent),
                stop=stopper,
                verbose=0,
                callbacks=[*callbacks, DropMetricHistory(), SilentTrialProgress()],
                failure_config=tune.FailureConfig(max_failures=0),
                checkpoint_config=tune.CheckpointConfig(**({} if self.real_workers else {"checkpoint_at_end": False})),
            ),
        )


class SearchAdapter(Searcher):
    """Adapter that gives Ray Tune the trials that `Search` suggests."""

    def __init__(self, search: Search, sweep_trials: SweepTrials, sweep_status: SweepStatus) -> None:
        super().__init__(metric="seen", mode="min")
        self.search, self.sweep_trials, self.sweep_status = search, sweep_trials, sweep_status
        self.running_trials: dict[str, tuple[Suggestion, float]] = {}
        self.lost_suggestions: set[Suggestion] = set()  # whose process died before writing a record
        self.stopped_paths: list[Path] = []  # records of trials that were stopped for lack of time
        self.finished_trials = pd.DataFrame([], columns=FINISHED_TRIAL_COLUMNS)
        self.setting_results: list[SettingResult] = []
        self.add_earlier_records()

    def suggest(self, trial_id: str) -> JsonObject | str | None:
        """Return the next trial, None to wait for running trials that decide it, or `Searcher.FINISHED`.

        The search finishes without waiting for extra trials: their results change nothing, and waiting slots lose
        their processes.
        """
        running = self.running_suggestions()
        time_is_up = self.time_is_up()
        suggestion = None if time_is_up else self.search.suggest(self.finished_trials, running, self.lost_suggestions)
        if suggestion is None:
            must_wait = not time_is_up and self.search.depends_on_running(self.finished_trials, running)
            return None if must_wait else Searcher.FINISHED
        self.running_trials[trial_id] = suggestion, time.monotonic()
        write_search_progress(self)
        return asdict(self.sweep_trials.build_worker_config(suggestion))

    def time_is_up(self) -> bool:
        """Return whether trials must end now; at the reserve of the budget, find out whether it is needed."""
        trials = self.sweep_trials
        if time.time() > trials.deadline and trials.reserve:
            reserve, trials.reserve = trials.reserve, None
            if not reserve.is_needed(self.finished_trials):
                trials.deadline = reserve.deadline
        return time.time() > trials.deadline

    def running_suggestions(self) -> list[Suggestion]:
        """Return the suggestions whose trials are running."""
        return [suggestion for suggestion, _ in self.running_trials.values()]

    def on_trial_complete(self, trial_id: str, result: JsonObject | None = None, error: bool = False) -> None:
        """Complete the record of a trial that ended, was stopped or failed, and count its seconds."""
        suggestion, start = self.running_trials.pop(trial_id)
        metrics, elapsed = TrialMetrics.from_result(result or {}), time.monotonic() - start
        trial_seconds = metrics.since if metrics.fresh else elapsed
        self.sweep_trials.total_trial_seconds += trial_seconds
        self.sweep_trials.startup_seconds += elapsed - trial_seconds
        self.sweep_trials.train_seconds += metrics.busy  # the last result is not in `on_trial_result`
        if metrics.places:
            release_placement_group(metrics.places)
        path = self.sweep_trials.record_path(suggestion)
        if not path.exists():
            self.lost_suggestions.add(suggestion)
            return
        record = read_record(path)
        if record.status == "running":
            if error:
                record = replace(record, status="failed", reason="its process died")
            elif self.is_hopeless(suggestion, record_to_row(record)[3]):
                record = replace(record, status="pruned", reason="it could no longer beat the best trial")
            else:  # tells nothing about the setting: the trial starts from the beginning when there is more time
                record = mark_cut_off(record)
            write_json(path, record.to_json())
        if record.status == "cut_off":
            self.stopped_paths.append(path)
        else:
            self.add_records([record])
        write_search_progress(self)
        self.sweep_status.show(self.finished_trials, len(self.running_trials), self.setting_results)

    def add_earlier_records(self) -> None:
        """Add the trials of earlier commands."""
        self.add_records(load_finished_trials(self.sweep_trials.folder, self.sweep_trials.base))

    def add_trials_that_ended_late(self) -> None:
        """Add the trials that came to their end between the signal to stop and the end of their process."""
        self.add_records(read_stopped_trials(self.stopped_paths))

    def add_records(self, records: Iterable[Record]) -> None:
        """Add trials that ended; the first that measured a noise scale passes it to the search."""
        records = [record for record in records if record.config.global_batch in self.search.batches]
        if not records:
            return  # none yet, or all from an earlier command with other batch sizes
        rows = pd.DataFrame(map(record_to_row, records), columns=FINISHED_TRIAL_COLUMNS)
        rows["seed"] -= self.sweep_trials.base.seed  # the search counts from 0
        self.finished_trials = (
            pd.concat([self.finished_trials, rows], ignore_index=True) if len(self.finished_trials) else rows
        )
        self.setting_results = self.search.rank_settings(self.finished_trials)
        for record in records:
            self.search.noise_scale = self.search.noise_scale or mean_noise_scale(record.laps)

    def is_hopeless(self, suggestion: Suggestion, examples_seen: float) -> bool:
        """Return whether a trial has already taken longer than the best setting takes in all, by a safe factor."""
        seconds = examples_seen / suggestion.global_batch * self.search.step_seconds(suggestion.global_batch)
        return should_prune(seconds, self.setting_results[0].seconds if self.setting_results else float("inf"))

    def on_trial_result(self, trial_id: str, result: JsonObject) -> None:
        """Count the seconds the trial trained; the stopper looks at the other metrics."""
        self.sweep_trials.train_seconds += TrialMetrics.from_result(result).busy

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the records of the trials are the state."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing: the records of the trials are the state."""


class PruneStopper(tune.Stopper):
    """Stopper of trials that are already slower than the best one."""

    def __init__(self, search_adapter: SearchAdapter) -> None:
        self.search_adapter = search_adapter

    def __call__(self, trial_id: str, result: JsonObject) -> bool:
        """Return whether this trial must stop now."""
        if trial_id not in self.search_adapter.running_trials:
            return False
        suggestion, _ = self.search_adapter.running_trials[trial_id]
        return self.search_adapter.is_hopeless(suggestion, TrialMetrics.from_result(result).seen)

    def stop_all(self) -> bool:
        """Return False: the scheduler stops all trials when the time is up."""
        return False


class SilentTrialProgress(TrialProgressCallback):
    """Callback in place of Tune's own, which prints a line for each trial that was stopped before it reported."""

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Print nothing: `SweepStatus` shows the results."""


class DropMetricHistory(tune.Callback):
    """Callback that frees Tune's history of each metric: 28 KB per trial, kept to the end and never read."""

    def on_trial_complete(self, iteration: int, trials: Any, trial: tune.experiment.Trial, **info: Any) -> None:
        """Clear the metric history of a trial that ended; its last result stays."""
        trial.metric_analysis.clear()
        trial.metric_n_steps.clear()


def tune_trial_name(trial: tune.experiment.Trial) -> str:
    """Return a trial's name in Tune and in trackers: the stem of its record file, after the name of its recipe."""
    path = PurePosixPath(trial.config["path"])
    return f"{path.parent.name}-{path.stem}" if path.parent.parent.name == RECIPE_TRIALS_FOLDER else path.stem


def create_temporary_tune_folder() -> Path:
    """Create a folder for Tune's own state, which is never resumed from; it is deleted when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="equipoise-tune-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
