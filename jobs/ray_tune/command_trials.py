"""Trials of a sweep that run a user's command: as many at a time as the cluster holds, until the search ends."""

import time
from dataclasses import asdict
from itertools import count
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayActorError
from ray.tune.search import Searcher

from equipoise.type_aliases import JsonObject
from jobs.ray_tune.trial_messages import TrialMetrics, TrialWorkerConfig
from jobs.ray_tune.tuner import SearchAdapter
from jobs.user_command.command_run import CommandFolders
from jobs.user_command.command_worker import CommandProgress, create_command_worker, get_result

FOLLOW_SECONDS = 0.5  # between two looks at whether a trial can still matter


class RunningTrial(NamedTuple):
    """Trial that a worker runs."""

    trial_id: str
    config: TrialWorkerConfig
    worker: Any
    is_first: bool
    """whether the worker was started for it"""


class CommandTrials:
    """Trials of a search that run a command, each on one worker with the CPUs of its own number of workers."""

    def __init__(self, adapter: SearchAdapter, working: str, prune: bool) -> None:
        self.adapter, self.sweep_trials, self.working, self.prune = adapter, adapter.sweep_trials, working, prune
        self.running: dict[ray.ObjectRef[CommandProgress], RunningTrial] = {}
        self.idle_workers: list[tuple[int, Any]] = []
        self.pending: tuple[str, TrialWorkerConfig] | None = None
        self.trial_ids = map(str, count())

    def run(self) -> None:
        """Run trials until the search has ended or the time is up."""
        try:
            while self._start_trials() or self.running:
                seconds_left = self.sweep_trials.deadline - time.time()
                if seconds_left <= 0:
                    break
                ready, _ = ray.wait([*self.running], timeout=min(seconds_left, 1.0))
                for reference in ready:
                    self._handle_progress(reference)
        finally:
            for trial in self.running.values():
                ray.kill(trial.worker)
        for trial in self.running.values():
            self._complete(trial, TrialMetrics())
        for _, worker in self.idle_workers:
            ray.kill(worker)

    def _start_trials(self) -> bool:
        """Start the trials that free slots have room for; return False once the search suggests no more."""
        while True:
            busy = sum(trial.config.trial.workers for trial in self.running.values())
            if busy >= self.sweep_trials.slots:
                return True
            if self.pending is None:  # not before there is a free slot: each result may change the next suggestion
                trial_id = next(self.trial_ids)
                suggestion = self.adapter.suggest(trial_id)
                if suggestion == Searcher.FINISHED:
                    return False
                if not isinstance(suggestion, dict):
                    return True
                self.pending = trial_id, TrialWorkerConfig.from_dict(suggestion)
            trial_id, config = self.pending
            if busy and busy + config.trial.workers > self.sweep_trials.slots:
                return True
            self.pending = None
            self._start(trial_id, config, self.sweep_trials.slots - busy)

    def _start(self, trial_id: str, config: TrialWorkerConfig, free_slots: int) -> None:
        """Start a trial on an idle worker of its size, or on a new one in the place of idle ones of other sizes."""
        trial = config.trial
        worker = next((worker for size, worker in self.idle_workers if size == trial.workers), None)
        if is_first := worker is None:
            while self.idle_workers and sum(size for size, _ in self.idle_workers) + trial.workers > free_slots:
                ray.kill(self.idle_workers.pop()[1])
            worker = create_command_worker(trial.workers, trial.threads, config.gpu)
        else:
            self.idle_workers.remove((trial.workers, worker))
        files = self.sweep_trials.folder / config.path.rpartition("/")[2].removesuffix(".json")
        worker.start.remote(trial, CommandFolders(self.working, str(files)), config.path)
        self.running[worker.follow.remote(FOLLOW_SECONDS)] = RunningTrial(trial_id, config, worker, is_first)

    def _handle_progress(self, reference: "ray.ObjectRef[CommandProgress]") -> None:
        """Go on with a trial, or end it if its run has ended or it can no longer matter."""
        trial = self.running.pop(reference)
        try:
            progress = get_result(reference)
        except RayActorError:  # its node was lost, or the process was killed for lack of memory
            self._complete(trial, TrialMetrics(), error=True)
            return
        metrics = measure_progress(progress, trial)
        if not progress.has_ended and not self._is_hopeless(trial, metrics.seen):
            self.running[trial.worker.follow.remote(FOLLOW_SECONDS)] = trial
            return
        if not progress.has_ended:
            get_result(trial.worker.stop.remote())
        self.idle_workers.append((trial.config.trial.workers, trial.worker))
        self._complete(trial, metrics)

    def _is_hopeless(self, trial: RunningTrial, seen: int) -> bool:
        """Return whether a trial can no longer beat the best one."""
        suggestion, _ = self.adapter.running_trials[trial.trial_id]
        return self.prune and self.adapter.is_hopeless(suggestion, seen)

    def _complete(self, trial: RunningTrial, metrics: TrialMetrics, error: bool = False) -> None:
        """Tell the search how a trial ended; its record tells the rest."""
        result: JsonObject = asdict(metrics)
        self.adapter.on_trial_complete(trial.trial_id, result, error)


def measure_progress(progress: CommandProgress, trial: RunningTrial) -> TrialMetrics:
    """Return the metrics of a trial; the seconds of its command are all the command's own, its start included."""
    laps = progress.record.laps
    return TrialMetrics(
        seen=laps[-1].seen if laps else 0,
        busy=progress.command_seconds,
        done=progress.has_ended,
        fresh=trial.is_first,
        since=progress.worker_seconds,
    )
