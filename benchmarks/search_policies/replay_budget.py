"""A sweep with a budget, replayed on recorded curves with a virtual clock.

Search, pruning, records, crossings and plan are those of the sweep itself; only training is played back. Two trials
run at a time, each on one worker; evaluations take their time. Every half a second a trial reports, as in a sweep.
"""

from dataclasses import dataclass, field, replace

import pandas as pd

from benchmarks.search_policies.recorded_curves import Curve, RecordedCurves
from equipoise.config import TrainConfig
from equipoise.hardware_facts import HardwareFacts
from equipoise.planning.build_document import PlanRequest, complete_plan
from equipoise.planning.document import PlanDocument, PlanEntry
from equipoise.planning.examples_to_target import ExamplesCurve, fit_examples_curve
from equipoise.planning.search import Search, Suggestion, should_prune
from equipoise.planning.sweep_budget import MIN_TRIAL_STEPS
from equipoise.planning.targets.target_plans import fit_easier_targets
from equipoise.runs.record import Lap, Record, RunStatus
from equipoise.runs.target import Target
from jobs.ray_tune.fastest_workers import FastestWorkers
from jobs.ray_tune.target_crossings import list_crossings
from jobs.ray_tune.trial_records import FINISHED_TRIAL_COLUMNS, record_to_row

SLOT_COUNT = 2
REPORT_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """What a replayed sweep is asked for, and what its overheads cost."""

    targets: tuple[float, ...]
    """the easiest first; trials end at the last one"""
    budget_seconds: float = 120.0
    timing_seconds: float = 45.0
    """seconds until the steps have been timed: measured, of 48 allowed in 120"""
    startup_seconds: float = 15.0
    """seconds until the processes of trials have started"""
    evaluation_seconds: float = 0.92
    """seconds of an evaluation, on one core"""
    eval_every: int = 2048
    """examples between evaluations"""
    base_lr: float = 3e-3
    """learning rate at a batch size of 32 that the search starts from"""


@dataclass(kw_only=True)
class PlayedTrial:
    """Trial that is being played back."""

    suggestion: Suggestion
    curve: Curve
    step_seconds: float
    start: float
    settings: SweepSettings
    laps: list[Lap] = field(default_factory=list)
    clock: float = 0.0
    """seconds of training and evaluation of the laps"""
    reached: bool = False

    def play_until(self, now: float) -> None:
        """Add the laps that ended by a time, up to the last target; each ends with an evaluation."""
        batch, every = self.suggestion.global_batch, self.settings.eval_every
        while not self.reached:
            seen = self.laps[-1].seen if self.laps else 0
            steps = -(-((seen // every + 1) * every - seen) // batch)
            seconds = steps * self.step_seconds
            if self.start + self.clock + seconds + self.settings.evaluation_seconds > now:
                return
            self.clock += seconds + self.settings.evaluation_seconds
            metric = self.curve.metric_at(seen + steps * batch)
            self.laps.append(build_lap(seen // batch + steps, steps, batch, self.suggestion.lr, seconds, metric))
            self.reached = metric <= self.settings.targets[-1]

    def count_seen(self, now: float) -> int:
        """Return the examples seen by a time, those of an unfinished lap included; at least a batch."""
        batch, seen = self.suggestion.global_batch, self.laps[-1].seen if self.laps else 0
        steps = int((now - self.start - self.clock) / self.step_seconds)
        return seen if self.reached else max(batch, min(seen + steps * batch, seen + self.settings.eval_every))

    def build_record(self, status: RunStatus, now: float) -> Record:
        """Build the record of the trial as it stands."""
        batch, lr, seed = self.suggestion
        target, seen = self.settings.targets[-1], self.count_seen(now)
        laps = list(self.laps)
        if seen > (laps[-1].seen if laps else 0):
            steps = (seen - (laps[-1].seen if laps else 0)) // batch
            laps.append(build_lap(seen // batch, steps, batch, lr, steps * self.step_seconds, None))
        config = TrainConfig(workload="text", batch_size=batch, lr=lr, seed=seed, target=target)
        record = Record(
            config=config, machine=HardwareFacts(), laps=laps, status=status, target=target,
            examples_to_target=None, test=None, lower_is_better=True,
        )  # fmt: skip
        crossing = list_crossings([record], [record.goal]) if self.reached else None
        return record if crossing is None else replace(record, examples_to_target=float(crossing.examples.iloc[0]))


def build_lap(step: int, steps: int, batch: int, lr: float, seconds: float, metric: float | None) -> Lap:
    """Build a lap of one worker."""
    return Lap(step=step, steps=steps, seen=step * batch, examples=steps * batch, workers=1, lr=lr,
               loss=None, seconds=seconds, metric=metric)  # fmt: skip


class ReplayedSweep:
    """Sweep whose trials are played back."""

    def __init__(self, truth: RecordedCurves, settings: SweepSettings, seeds: list[int], draw: int) -> None:
        self.truth, self.settings, self.seeds = truth, settings, seeds
        self.steps = truth.draw_steps(draw)
        self.step_fit = truth.fit_ladder(draw)
        self.fastest = FastestWorkers(self.step_fit)
        seconds_left = settings.budget_seconds - settings.timing_seconds
        self.fastest.keep_batches(
            [b for b in self.fastest.seconds_by_batch
             if b in truth.batches and MIN_TRIAL_STEPS * truth.interpolate_step_seconds(1, b) <= seconds_left]
        )  # fmt: skip
        batches = sorted(self.fastest.seconds_by_batch)
        self.search = RecordedSearch(truth, batches, settings.base_lr * (batches[0] / 32) ** 0.5, self.fastest)
        self.records: list[Record] = []
        self.best_seconds = float("inf")
        self.finished = pd.DataFrame([], columns=FINISHED_TRIAL_COLUMNS)

    def run(self) -> None:
        """Play trials until the search or the budget ends."""
        now = self.settings.timing_seconds + self.settings.startup_seconds
        running: list[PlayedTrial] = []
        while now <= self.settings.budget_seconds:
            running = [trial for trial in running if not self._end_trial(trial, now)]
            while len(running) < SLOT_COUNT:
                suggestion = self.search.suggest(self.finished, [trial.suggestion for trial in running])
                if suggestion is None:
                    break
                running.append(self._start_trial(suggestion, now))
            if not running:
                return
            now += REPORT_SECONDS
        self.records += [trial.build_record("cut_off", now) for trial in running]

    def fit_targets(self) -> dict[float, ExamplesCurve]:
        """Fit a curve to each target, the last one to the trials that ended."""
        targets = Target(value=None, lower_is_better=True).list_targets(self.settings.targets)
        easier = fit_easier_targets(list_crossings(self.records, targets)) if len(targets) > 1 else []
        return {**dict(easier), self.settings.targets[-1]: fit_examples_curve(self.finished)}

    def build_plan(self, curve: ExamplesCurve) -> PlanEntry | None:
        """Build the plan to a target from the curve to it."""
        request = PlanRequest(system=self.steps, statistical=self.finished)
        empty = PlanDocument(plan=None, front=(), system=None, statistical=None, warnings=())
        return complete_plan(empty, request, self.step_fit, curve).plan

    def _start_trial(self, suggestion: Suggestion, now: float) -> PlayedTrial:
        curves = self.truth.choose_curves(suggestion.global_batch, suggestion.lr, self.seeds)
        return PlayedTrial(
            suggestion=suggestion,
            curve=curves[suggestion.seed % len(curves)],
            step_seconds=self.truth.interpolate_step_seconds(1, suggestion.global_batch),
            start=now,
            settings=self.settings,
        )

    def _end_trial(self, trial: PlayedTrial, now: float) -> bool:
        """Return whether a trial has ended, by its target or because it is hopeless; keep its record if so."""
        trial.play_until(now)
        batch = trial.suggestion.global_batch
        if not trial.reached:
            seconds = trial.count_seen(now) / batch * self.search.step_seconds(batch)
            if not should_prune(seconds, self.best_seconds):
                return False
        record = trial.build_record("reached_target" if trial.reached else "pruned", now)
        self.records.append(record)
        row = pd.DataFrame([record_to_row(record)], columns=FINISHED_TRIAL_COLUMNS)
        self.finished = pd.concat([self.finished, row], ignore_index=True) if len(self.finished) else row
        self.best_seconds = self.search.rank_settings(self.finished)[0].seconds
        self.search.noise_scale = self.search.noise_scale or trial.curve.noise_scale
        return True


class RecordedSearch(Search):
    """Search among the recorded learning rates."""

    def __init__(self, truth: RecordedCurves, batches: list[int], base_lr: float, fastest: FastestWorkers) -> None:
        super().__init__(batches, base_lr, fastest.step_seconds)
        self.truth = truth

    def rank_suggestions(self, finished: pd.DataFrame) -> list[Suggestion]:
        """Return the suggestions whose settings were recorded."""
        return [suggestion for suggestion in super().rank_suggestions(finished) if suggestion[:2] in self.truth.curves]

    def candidate_lrs(self, batch: int) -> list[float]:
        """Return the recorded learning rates."""
        return self.truth.list_lrs(batch)
