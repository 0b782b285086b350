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

from equipoise.config import Trial
from equipoise.planning.search import Ask, Search, Standing, hopeless
from equipoise.runs import folder as runs
from equipoise.runs.record import Record, noise_scale
from equipoise.storage import atomic as store
from equipoise.storage.object_store import Url
from jobs.cli.sweep_status import Board
from jobs.ray_tune import multi_worker_trial as together
from jobs.ray_tune import single_worker_trial as trials
from jobs.ray_tune.single_worker_trial import UNDER_WAY

STOPPED = "stopped: it could no longer matter"
CUT_OFF = "cut off: time was up"  # says nothing of the setting: the trial starts anew when there is more time
LEAST_FREEDOM = 5  # trials beside the first of each batch, for a scatter to be believed
VARIED: dict[str, Any] = {"workers": 1, "batch": 1, "accumulate": 1, "lr": 0.0, "seed": 0}
"""what trials of one sweep do not have in common"""
COLUMNS = ["global_batch", "lr", "seed", "examples", "reached"]


@dataclass(kw_only=True)
class Sweep:
    """The trials of a sweep: where they are kept, how each runs, and until when."""

    base: Trial
    folder: Path
    workers_at: dict[int, int]
    """workers that share each global batch: those that are fastest with it"""
    slots: int
    """trials at a time, each on one worker"""
    gpu: bool = False
    real: bool = False
    """run trials on as many workers as share the batch, not on one that stands for them"""
    whole: int = 0
    """the largest global batch that one worker may take at once"""
    until: float = float("inf")
    """time of day at which trials under way are stopped"""
    busy: float = field(default=0.0, init=False)
    """seconds that trials trained"""
    held: float = field(default=0.0, init=False)
    """seconds from their being asked for to their end, without the start of the processes that are kept for them"""
    starting: float = field(default=0.0, init=False)
    """seconds of those starts"""

    def trial(self, asked: Ask) -> Trial:
        """What is run for what the search asks."""
        seed = self.base.seed + asked.seed
        setting = (asked.global_batch, asked.lr, seed)
        return trials.trial_of(self.base, setting, self.workers_at[asked.global_batch], self.real, self.whole)

    def path(self, asked: Ask) -> Path:
        """A trial's file."""
        return self.folder / f"{stem(self.trial(asked))}.json"

    def tuner(self, policy: "Policy", stop: tune.Stopper | None, callbacks: list[tune.Callback]) -> tune.Tuner:
        """Ray Tune's side."""
        os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # the new one prints a table of its own even if told not to
        os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # three files a trial that nobody asked for
        logging.getLogger("ray.tune.analysis.experiment_analysis").setLevel(logging.ERROR)  # it misses them
        os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "inf")  # the records are the state: its own is never read
        os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")  # Ctrl-C ends the sweep, not the search alone
        resources = {"CPU": self.base.threads, **({"GPU": 1} if self.gpu else {})}
        runnable = tune.with_resources(together.real, together.STARTER) if self.real else None
        return tune.Tuner(
            runnable or tune.with_resources(trials.Alone, resources),
            tune_config=tune.TuneConfig(
                search_alg=policy,
                scheduler=Waiting(),
                num_samples=-1,
                max_concurrent_trials=max(1, self.slots // max(self.workers_at.values())) if self.real else self.slots,
                reuse_actors=not self.real,
                trial_name_creator=name,
                trial_dirname_creator=name,
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=str(scratch() if isinstance(self.folder, Url) else self.folder.parent),
                stop=stop,
                verbose=0,
                callbacks=[*callbacks, Forgetting()],
                failure_config=tune.FailureConfig(max_failures=0),
                checkpoint_config=tune.CheckpointConfig(**({} if self.real else {"checkpoint_at_end": False})),
            ),
        )


class Policy(Searcher):
    """`Search` as Tune asks for it."""

    def __init__(self, search: Search, sweep: Sweep, board: Board) -> None:
        super().__init__(metric="seen", mode="min")
        self.search, self.sweep, self.board = search, sweep, board
        self.running: dict[str, tuple[Ask, float]] = {}
        self.lost: set[Ask] = set()  # whose process died before it wrote anything
        self.finished = pd.DataFrame([], columns=COLUMNS)
        self.settings: list[Standing] = []
        self.take(ended(sweep.folder, sweep.base))

    def suggest(self, trial_id: str) -> Any:
        """The next trial, None to wait for those that decide what comes next, or the end.

        A spare trial that still runs is not waited for: slots that wait lose their processes, so the end is said now.
        """
        running = self.asks()
        over = time.time() > self.sweep.until
        asked = None if over else self.search.ask(self.finished, running, self.lost)
        if asked is None:
            return Searcher.FINISHED if over or not self.search.undecided(self.finished, running) else None
        self.running[trial_id] = asked, time.monotonic()
        facts = asdict(self.sweep.trial(asked))
        return {"trial": facts, "path": str(self.sweep.path(asked)), "gpu": self.sweep.gpu}

    def asks(self) -> list[Ask]:
        """What runs now."""
        return [asked for asked, _ in self.running.values()]

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """A trial ended, was stopped, or fell: its record says so."""
        asked, start = self.running.pop(trial_id)
        facts, took = result or {}, time.monotonic() - start
        held = facts["since"] if facts.get("fresh") else took
        self.sweep.held += held
        self.sweep.starting += took - held
        self.sweep.busy += facts.get("busy", 0.0)  # of its last turn, which comes here alone
        if facts.get("places"):
            together.freed(facts["places"])
        path = self.sweep.path(asked)
        if not path.exists():
            self.lost.add(asked)
            return
        record = runs.read(path)
        if record.ended == UNDER_WAY:
            why = "failed: its process died" if error else STOPPED if self.hopeless(asked, row(record)[3]) else CUT_OFF
            record = replace(record, ended=why)
            store.write_json(path, record.to_json())
        if record.ended != CUT_OFF:
            self.take([record])
        self.board.show(self.finished, len(self.running), self.settings)

    def take(self, records: Iterable[Record]) -> None:
        """Count trials that ended; the first that knows the noise scale tells it to the search."""
        ours = [one for one in records if one.trial.global_batch in self.search.batches]
        if not ours:
            return  # or left by a command that asked for other batches
        rows = pd.DataFrame(map(row, ours), columns=COLUMNS)
        rows["seed"] -= self.sweep.base.seed  # the search counts from 0
        self.finished = pd.concat([self.finished, rows], ignore_index=True) if len(self.finished) else rows
        self.settings = self.search.settings(self.finished)
        for record in ours:
            self.search.noise = self.search.noise or noise_scale(record.laps)

    def hopeless(self, asked: Ask, seen: float) -> bool:
        """Whether a trial that has seen so many examples took longer than the best one takes in all."""
        seconds = seen / asked.global_batch * self.search.step(asked.global_batch)
        return hopeless(seconds, self.settings[0].seconds if self.settings else float("inf"))

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Count the seconds it trained; the stopper looks at the rest."""
        self.sweep.busy += result["busy"]

    def save(self, checkpoint_path: str) -> None:
        """Nothing to keep: the records are the state."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to read back."""


class Hopeless(tune.Stopper):
    """Ends trials that have already taken longer than the best one took in all, and all of them when time is up."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether this trial is to end."""
        if trial_id not in self.policy.running:
            return False
        asked, _ = self.policy.running[trial_id]
        return self.policy.hopeless(asked, result["seen"]) or time.time() > self.policy.sweep.until

    def stop_all(self) -> bool:
        """Never: the policy ends the sweep."""
        return False


class Waiting(FIFOScheduler):
    """Looks for the next trial among those that have not ended; Tune's own looks at all there ever were."""

    def choose_trial_to_run(self, tune_controller: Any) -> tune.experiment.Trial | None:
        """One that was asked for and has not begun; it is Tune that asks."""
        return next((one for one in tune_controller.get_live_trials() if one.status == one.PENDING), None)


class Forgetting(tune.Callback):
    """Lets go of what Tune gathers of each figure that a trial tells: 28 KB a trial, kept to the end for nobody."""

    def on_trial_complete(self, iteration: int, trials: Any, trial: tune.experiment.Trial, **info: Any) -> None:
        """Of the trial that ended; its last result stays."""
        trial.metric_analysis.clear()
        trial.metric_n_steps.clear()


def stem(trial: Trial) -> str:
    """Of a trial's file."""
    return f"batch-{trial.global_batch}-lr-{trial.lr:g}-seed-{trial.seed}"


def name(trial: tune.experiment.Trial) -> str:
    """A trial's name in Tune and in trackers: that of its file."""
    return PurePosixPath(trial.config["path"]).stem


def scratch() -> Path:
    """A folder for Tune's own state, which nothing is gone on from, for as long as this process lives."""
    place = Path(tempfile.mkdtemp(prefix="equipoise-tune-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


def ended(folder: Path, base: Trial) -> list[Record]:
    """All trials of a sweep that ended."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            record = runs.read(path)
        except ValueError as error:
            raise ValueError(f"{path} is damaged: remove it, and the same command repeats its trial") from error
        if replace(record.trial, **VARIED) != replace(base, **VARIED) or path.stem != stem(record.trial):
            raise ValueError(f"{path} is not the trial that its name says: remove it, and the same command repeats it")
        if record.ended not in (UNDER_WAY, CUT_OFF):
            found.append(record)
    return found


def drift(records: Iterable[Record]) -> float:
    """Standard deviation of log pace from trial to trial with the same batch: the machine's own, over minutes.

    0 where too few trials tell. A trial's first lap is left out: it finds its caches empty.
    """
    paces: dict[tuple[int, int, int], list[float]] = {}
    for record in records:
        if laps := record.laps[1:]:
            setting = (record.trial.workers, record.trial.batch, record.trial.accumulate)
            pace = sum(lap.seconds for lap in laps) / sum(lap.steps for lap in laps)
            paces.setdefault(setting, []).append(math.log(pace))
    freedom = sum(len(own) - 1 for own in paces.values())
    if freedom < LEAST_FREEDOM:
        return 0.0
    squares = sum(statistics.variance(own) * (len(own) - 1) for own in paces.values() if own[1:])
    return math.sqrt(squares / freedom)


def row(record: Record) -> tuple[int, float, int, float, int]:
    """Examples until the target, or those seen without reaching it."""
    trial = record.trial
    seen = record.laps[-1].seen if record.laps else trial.global_batch  # a first lap that failed is not kept
    examples = record.examples_to_target or seen
    return trial.global_batch, trial.lr, trial.seed, examples, int(record.reached)
