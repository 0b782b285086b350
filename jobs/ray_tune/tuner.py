"""The statistical side of a sweep: our policy behind Ray Tune's interfaces says what to try next and what to stop.

The records of trials are its state: a driver that died is followed by one that reads them.
"""

import atexit
import logging
import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd
from ray import tune
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

from equipoise.config import TrainConfig
from equipoise.planning.search import Search, SettingResult, Suggestion, should_prune
from equipoise.runs.folder import read_record
from equipoise.runs.record import Record, mean_noise_scale
from equipoise.storage.atomic import write_json
from equipoise.storage.object_store import RemotePath
from jobs.cli.sweep_status import SweepStatus
from jobs.ray_tune.multi_worker_trial import LAUNCHER_RESOURCES, release_placement_group, run_multi_worker_trial
from jobs.ray_tune.single_worker_trial import SingleWorkerTrial, build_trial_config

MIN_DEGREES_OF_FREEDOM = 5  # trials beside the first of each batch, for a scatter to be believed
PER_TRIAL_FIELDS: dict[str, Any] = {"workers": 1, "batch_size": 1, "grad_accumulation": 1, "lr": 0.0, "seed": 0}
"""what trials of one sweep do not have in common"""
FINISHED_TRIAL_COLUMNS = ["global_batch", "lr", "seed", "examples", "reached"]


@dataclass(kw_only=True)
class SweepTrials:
    """The trials of a sweep: where they are kept, how each runs, and until when."""

    base: TrainConfig
    folder: Path
    workers_by_batch: dict[int, int]
    """workers that share each global batch: those that are fastest with it"""
    slots: int
    """trials at a time, each on one worker"""
    gpu: bool = False
    real_workers: bool = False
    """run trials on as many workers as share the batch, not on one that stands for them"""
    max_unsplit_batch: int = 0
    """the largest global batch that one worker may take at once"""
    deadline: float = float("inf")
    """time of day at which trials under way are stopped"""
    train_seconds: float = field(default=0.0, init=False)
    """seconds that trials trained"""
    trial_seconds: float = field(default=0.0, init=False)
    """seconds from their being asked for to their end, without the start of the processes that are kept for them"""
    startup_seconds: float = field(default=0.0, init=False)
    """seconds of those starts"""

    def build_trial(self, suggestion: Suggestion) -> TrainConfig:
        """What is run for what the search asks."""
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
        """A trial's file."""
        return self.folder / f"{trial_file_stem(self.build_trial(suggestion))}.json"

    def build_tuner(
        self, search_adapter: "SearchAdapter", stopper: tune.Stopper | None, callbacks: list[tune.Callback]
    ) -> tune.Tuner:
        """Ray Tune's side."""
        os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # the new one prints a table of its own even if told not to
        os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # three files a trial that nobody asked for
        logging.getLogger("ray.tune.analysis.experiment_analysis").setLevel(logging.ERROR)  # it misses them
        os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "inf")  # the records are the state: its own is never read
        os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")  # Ctrl-C ends the sweep, not the search alone
        resources = {"CPU": self.base.threads, **({"GPU": 1} if self.gpu else {})}
        runnable = tune.with_resources(run_multi_worker_trial, LAUNCHER_RESOURCES) if self.real_workers else None
        return tune.Tuner(
            runnable or tune.with_resources(SingleWorkerTrial, resources),
            tune_config=tune.TuneConfig(
                search_alg=search_adapter,
                scheduler=PendingTrialScheduler(),
                num_samples=-1,
                max_concurrent_trials=max(1, self.slots // max(self.workers_by_batch.values()))
                if self.real_workers
                else self.slots,
                reuse_actors=not self.real_workers,
                trial_name_creator=tune_trial_name,
                trial_dirname_creator=tune_trial_name,
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=str(
                    create_temporary_tune_folder() if isinstance(self.folder, RemotePath) else self.folder.parent
                ),
                stop=stopper,
                verbose=0,
                callbacks=[*callbacks, DropMetricHistory()],
                failure_config=tune.FailureConfig(max_failures=0),
                checkpoint_config=tune.CheckpointConfig(**({} if self.real_workers else {"checkpoint_at_end": False})),
            ),
        )


class SearchAdapter(Searcher):
    """`Search` as Tune asks for it."""

    def __init__(self, search: Search, sweep_trials: SweepTrials, sweep_status: SweepStatus) -> None:
        super().__init__(metric="seen", mode="min")
        self.search, self.sweep_trials, self.sweep_status = search, sweep_trials, sweep_status
        self.running_trials: dict[str, tuple[Suggestion, float]] = {}
        self.lost_suggestions: set[Suggestion] = set()  # whose process died before it wrote anything
        self.finished_trials = pd.DataFrame([], columns=FINISHED_TRIAL_COLUMNS)
        self.setting_results: list[SettingResult] = []
        self.add_records(load_finished_trials(sweep_trials.folder, sweep_trials.base))

    def suggest(self, trial_id: str) -> Any:
        """The next trial, None to wait for those that decide what comes next, or the end.

        A spare trial that still runs is not waited for: slots that wait lose their processes, so the end is said now.
        """
        running = self.running_suggestions()
        over = time.time() > self.sweep_trials.deadline
        asked = None if over else self.search.suggest(self.finished_trials, running, self.lost_suggestions)
        if asked is None:
            return (
                Searcher.FINISHED if over or not self.search.depends_on_running(self.finished_trials, running) else None
            )
        self.running_trials[trial_id] = asked, time.monotonic()
        facts = asdict(self.sweep_trials.build_trial(asked))
        return {"trial": facts, "path": str(self.sweep_trials.record_path(asked)), "gpu": self.sweep_trials.gpu}

    def running_suggestions(self) -> list[Suggestion]:
        """What runs now."""
        return [asked for asked, _ in self.running_trials.values()]

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """A trial ended, was stopped, or fell: its record says so."""
        asked, start = self.running_trials.pop(trial_id)
        facts, took = result or {}, time.monotonic() - start
        held = facts["since"] if facts.get("fresh") else took
        self.sweep_trials.trial_seconds += held
        self.sweep_trials.startup_seconds += took - held
        self.sweep_trials.train_seconds += facts.get("busy", 0.0)  # of its last turn, which comes here alone
        if facts.get("places"):
            release_placement_group(facts["places"])
        path = self.sweep_trials.record_path(asked)
        if not path.exists():
            self.lost_suggestions.add(asked)
            return
        record = read_record(path)
        if record.status == "running":
            if error:
                record = replace(record, status="failed", reason="its process died")
            elif self.is_hopeless(asked, record_to_row(record)[3]):
                record = replace(record, status="pruned", reason="it could no longer matter")
            else:  # says nothing of the setting: the trial starts anew when there is more time
                record = replace(record, status="cut_off", reason="time was up")
            write_json(path, record.to_json())
        if record.status != "cut_off":
            self.add_records([record])
        self.sweep_status.show(self.finished_trials, len(self.running_trials), self.setting_results)

    def add_records(self, records: Iterable[Record]) -> None:
        """Count trials that ended; the first that knows the noise scale tells it to the search."""
        ours = [one for one in records if one.config.global_batch in self.search.batches]
        if not ours:
            return  # or left by a command that asked for other batches
        rows = pd.DataFrame(map(record_to_row, ours), columns=FINISHED_TRIAL_COLUMNS)
        rows["seed"] -= self.sweep_trials.base.seed  # the search counts from 0
        self.finished_trials = (
            pd.concat([self.finished_trials, rows], ignore_index=True) if len(self.finished_trials) else rows
        )
        self.setting_results = self.search.rank_settings(self.finished_trials)
        for record in ours:
            self.search.noise_scale = self.search.noise_scale or mean_noise_scale(record.laps)

    def is_hopeless(self, suggestion: Suggestion, examples_seen: float) -> bool:
        """Whether a trial that has seen so many examples took longer than the best one takes in all."""
        seconds = examples_seen / suggestion.global_batch * self.search.step_seconds(suggestion.global_batch)
        return should_prune(seconds, self.setting_results[0].seconds if self.setting_results else float("inf"))

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Count the seconds it trained; the stopper looks at the rest."""
        self.sweep_trials.train_seconds += result["busy"]

    def save(self, checkpoint_path: str) -> None:
        """Nothing to keep: the records are the state."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to read back."""


class PruneStopper(tune.Stopper):
    """Ends trials that have already taken longer than the best one took in all, and all of them when time is up."""

    def __init__(self, search_adapter: SearchAdapter) -> None:
        self.search_adapter = search_adapter

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether this trial is to end."""
        if trial_id not in self.search_adapter.running_trials:
            return False
        asked, _ = self.search_adapter.running_trials[trial_id]
        return (
            self.search_adapter.is_hopeless(asked, result["seen"])
            or time.time() > self.search_adapter.sweep_trials.deadline
        )

    def stop_all(self) -> bool:
        """Never: the policy ends the sweep."""
        return False


class PendingTrialScheduler(FIFOScheduler):
    """Looks for the next trial among those that have not ended; Tune's own looks at all there ever were."""

    def choose_trial_to_run(self, tune_controller: Any) -> tune.experiment.Trial | None:
        """One that was asked for and has not begun; it is Tune that asks."""
        return next((one for one in tune_controller.get_live_trials() if one.status == one.PENDING), None)


class DropMetricHistory(tune.Callback):
    """Lets go of what Tune gathers of each figure that a trial tells: 28 KB a trial, kept to the end for nobody."""

    def on_trial_complete(self, iteration: int, trials: Any, trial: tune.experiment.Trial, **info: Any) -> None:
        """Of the trial that ended; its last result stays."""
        trial.metric_analysis.clear()
        trial.metric_n_steps.clear()


def trial_file_stem(trial: TrainConfig) -> str:
    """Of a trial's file."""
    return f"batch-{trial.global_batch}-lr-{trial.lr:g}-seed-{trial.seed}"


def tune_trial_name(trial: tune.experiment.Trial) -> str:
    """A trial's name in Tune and in trackers: that of its file."""
    return PurePosixPath(trial.config["path"]).stem


def create_temporary_tune_folder() -> Path:
    """A folder for Tune's own state, which nothing is gone on from, for as long as this process lives."""
    place = Path(tempfile.mkdtemp(prefix="equipoise-tune-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


def load_finished_trials(folder: Path, base: TrainConfig) -> list[Record]:
    """All trials of a sweep that ended."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            record = read_record(path)
        except ValueError as error:
            raise ValueError(f"{path} is damaged: remove it, and the same command repeats its trial") from error
        if replace(record.config, **PER_TRIAL_FIELDS) != replace(
            base, **PER_TRIAL_FIELDS
        ) or path.stem != trial_file_stem(record.config):
            raise ValueError(f"{path} is not the trial that its name says: remove it, and the same command repeats it")
        if record.status not in ("running", "cut_off"):
            found.append(record)
    return found


def estimate_pace_drift(records: Iterable[Record]) -> float:
    """Standard deviation of log pace from trial to trial with the same batch: the machine's own, over minutes.

    0 where too few trials tell. A trial's first lap is left out: it finds its caches empty.
    """
    paces: dict[tuple[int, int, int], list[float]] = {}
    for record in records:
        if laps := record.laps[1:]:
            setting = (record.config.workers, record.config.batch_size, record.config.grad_accumulation)
            pace = sum(lap.seconds for lap in laps) / sum(lap.steps for lap in laps)
            paces.setdefault(setting, []).append(math.log(pace))
    freedom = sum(len(own) - 1 for own in paces.values())
    if freedom < MIN_DEGREES_OF_FREEDOM:
        return 0.0
    squares = sum(statistics.variance(own) * (len(own) - 1) for own in paces.values() if own[1:])
    return math.sqrt(squares / freedom)


def record_to_row(record: Record) -> tuple[int, float, int, float, int]:
    """Examples until the target, or those seen without reaching it."""
    trial = record.config
    seen = record.laps[-1].seen if record.laps else trial.global_batch  # a first lap that failed is not kept
    examples = record.examples_to_target or seen
    return trial.global_batch, trial.lr, trial.seed, examples, int(record.reached)
