"""Our policy behind Ray Tune's interfaces: what to try next, what to stop, and how a trial runs.

Trials take seconds, so their actors are kept and given the next trial. What a trial
measured is written by the trial itself as it goes; the driver only marks how it ended.
"""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from ray import tune
from ray.tune.search import Searcher

from equipoise import runs, store
from equipoise.loop import Training
from equipoise.machine import machine
from equipoise.record import Record
from equipoise.search import Ask, Search, StepTime, hopeless
from equipoise.trial import Trial

UNDER_WAY, STOPPED = "under way", "stopped: it could no longer matter"
TURN_SECONDS = 0.5  # between two words with the driver
COLUMNS = ["global_batch", "lr", "seed", "examples", "reached"]


class Trained(tune.Trainable):
    """One trial, lap by lap."""

    def setup(self, config: dict[str, Any]) -> None:
        """The first trial of this actor."""
        self.reset_config(config)

    def reset_config(self, config: dict[str, Any]) -> bool:
        """The next trial of this actor."""
        trial = Trial(**config["trial"])
        torch.set_num_threads(trial.threads)
        self.path = Path(config["path"])
        self.training = Training(trial)
        self.laps = self.training.laps()
        return True

    def step(self) -> dict[str, Any]:
        """Laps for half a second, and what came of them."""
        training, until = self.training, time.monotonic() + TURN_SECONDS
        while training.ended is None and time.monotonic() < until:
            next(self.laps, None)
        record = Record(
            trial=training.trial,
            machine=machine(training.device),
            laps=training.done,
            ended=training.ended or UNDER_WAY,
            target=training.target,
            examples_to_target=training.crossing,
            test=None,
        )
        store.write_json(self.path, record.to_json())
        return {"seen": training.seen, "done": training.ended is not None}


class Policy(Searcher):
    """`Search` as Tune asks for it."""

    def __init__(self, search: Search, base: Trial, folder: Path, until: float) -> None:
        super().__init__(metric="seen", mode="min")
        self.search, self.base, self.folder, self.until = search, base, folder, until
        self.running: dict[str, Ask] = {}
        self.lost: set[Ask] = set()  # whose process died before it wrote anything
        self.finished = read(folder)

    def suggest(self, trial_id: str) -> Any:
        """The next trial, None to wait for those that run, or the end."""
        asked = (
            None if time.time() > self.until else self.search.ask(self.finished, {*self.running.values(), *self.lost})
        )
        if asked is None:
            return None if self.running else Searcher.FINISHED
        self.running[trial_id] = asked
        trial = trial_of(self.base, asked)
        return {"trial": asdict(trial), "path": str(self.folder / name(asked))}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """A trial ended, was stopped, or fell: its record says so."""
        asked = self.running.pop(trial_id)
        path = self.folder / name(asked)
        if path.exists():
            record = runs.read(path)
            if record.ended == UNDER_WAY:
                ended = "failed: its process died" if error else STOPPED
                store.write_json(path, record.to_json() | {"ended": ended})
        else:
            self.lost.add(asked)
        self.finished = read(self.folder)
        self.tell()

    def tell(self) -> None:
        """A line on how the search stands."""
        best = self.search.settings(self.finished)[0]
        left = max(0.0, self.until - time.time())
        print(
            f"{len(self.finished):>4} trials, {len(self.running)} running; best so far {best.global_batch} examples"
            f" a step at lr {best.lr:g}: {best.seconds:.3g} s ({best.seeds} seeds); {left:.0f} s left at most",
            flush=True,
        )

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Nothing to do: the stopper looks at results."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing to keep: the records are the state."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to read back."""


class Hopeless(tune.Stopper):
    """Ends trials that have already taken longer than the best one took in all, and all of them when time is up."""

    def __init__(self, policy: Policy, step: StepTime) -> None:
        self.policy, self.step = policy, step

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether this trial is to end."""
        asked = self.policy.running.get(trial_id)
        if asked is None:
            return False
        seconds = result["seen"] / asked.global_batch * self.step(asked.global_batch)
        return hopeless(seconds, self.policy.finished, self.step) or time.time() > self.policy.until

    def stop_all(self) -> bool:
        """Never: the policy ends the sweep."""
        return False


def trial_of(base: Trial, asked: Ask) -> Trial:
    """One worker that takes the whole global batch: the same steps as workers that share it."""
    facts = asdict(base) | {"workers": 1, "batch": asked.global_batch, "lr": asked.lr, "seed": asked.seed, "probe": 0}
    return Trial(**facts)


def name(asked: Ask) -> str:
    """A trial's file."""
    return f"batch-{asked.global_batch}-lr-{asked.lr:g}-seed-{asked.seed}.json"


def read(folder: Path) -> pd.DataFrame:
    """All trials that ended, as rows of statistical.csv."""
    records = (runs.read(path) for path in sorted(folder.glob("*.json")))
    rows = [row(record) for record in records if record.ended != UNDER_WAY]
    return pd.DataFrame(rows, columns=COLUMNS)


def row(record: Record) -> tuple[int, float, int, float, int]:
    """Examples until the target, or those seen without reaching it."""
    trial = record.trial
    seen = record.laps[-1].seen if record.laps else trial.global_batch  # a first lap that failed is not kept
    examples = record.examples_to_target or seen
    return trial.global_batch, trial.lr, trial.seed, examples, int(record.reached)
