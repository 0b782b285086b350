"""A batch that changes on the way to the target: in each stage the setting that is fastest for it.

A stage leads from one target to the next harder one. With a setting of global batch B it takes

    seconds = (E_next(B) - E_previous(B)) / B * T,

where E are the examples to each target and T is the time of a step. The batch never shrinks from stage to stage,
because the critical batch grows as training proceeds. A constant batch is the schedule with one setting in all stages,
so by this model none is slower than the constant plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np

from equipoise.formatting import format_number, pluralize
from equipoise.number_bounds import Count, FiniteNumber, LearningRate, PositiveNumber, Share
from equipoise.type_aliases import FloatArray

SCHEDULE_NOTE = (
    "assumes that progress does not depend on the batch that was used before: all trials kept one batch from start to"
    " end, and no run has confirmed the schedule"
)


@dataclass(frozen=True, kw_only=True)
class ScheduleStage:
    """Part of training with one setting, from the target of the stage before up to its own."""

    until: FiniteNumber
    """validation metric at which the stage ends"""
    nodes: Count
    """number of nodes"""
    workers: Count
    """workers on all nodes"""
    batch: Count
    """examples per worker and step"""
    global_batch: Count
    """examples per step of all workers"""
    lr: LearningRate | None
    """learning rate; None where the table has none"""
    examples: PositiveNumber
    """predicted examples of the stage"""
    seconds: PositiveNumber
    """predicted seconds of the stage"""

    def describe_setting(self) -> str:
        """Describe the setting of the stage, as '1 worker x 32 at lr 0.01'."""
        lr = "" if self.lr is None else f" at lr {self.lr:.3g}"
        return f"{pluralize(self.workers, 'worker')} x {self.batch}{lr}"


@dataclass(frozen=True, kw_only=True)
class BatchSchedule:
    """Plan whose batch grows on the way, beside the plan of a constant batch that `equipoise train --plan` trains."""

    stages: tuple[ScheduleStage, ...]
    """stages in the order of training"""
    seconds: PositiveNumber
    """predicted seconds of all stages"""
    constant_seconds: PositiveNumber
    """predicted seconds of the plan with its constant batch"""
    faster_share: Share
    """share of draws of the fits in which the stages take less time than the constant batch"""
    note: str = SCHEDULE_NOTE
    """what the prediction assumes"""

    @property
    def gain(self) -> float:
        """Share of the constant plan's time that the schedule saves."""
        return 1 - self.seconds / self.constant_seconds

    @property
    def is_constant(self) -> bool:
        """Whether all stages have one setting, so that the schedule is the constant plan."""
        return len({(stage.nodes, stage.workers, stage.batch) for stage in self.stages}) == 1

    def describe_gain(self) -> str:
        """Describe the stages and how much less time they take than the constant plan."""
        if self.is_constant:
            return "gains nothing here, one setting is the fastest up to every target"
        groups = groupby(self.stages, ScheduleStage.describe_setting)
        stages = ", ".join(f"{setting} until {[*group][-1].until:g}" for setting, group in groups)
        return (
            f"{stages}; predicted {format_number(self.seconds)} s, {self.gain:.0%} less than the"
            f" {format_number(self.constant_seconds)} s of"
            f" the plan (less in {self.faster_share:.0%} of draws)"
        )


class StageCandidate(NamedTuple):
    """Setting that stages may use, with what it needs to reach each target, the easiest first."""

    nodes: int
    workers: int
    batch: int
    step_seconds: float
    lrs: tuple[float | None, ...]
    """learning rate by target"""
    examples: FloatArray
    """examples by target"""
    example_draws: FloatArray
    """examples by target (rows) in each draw of the fits (columns)"""

    @property
    def global_batch(self) -> int:
        """Examples per step of all workers."""
        return self.workers * self.batch

    @property
    def example_seconds(self) -> float:
        """Seconds that an example takes in training with all workers."""
        return self.step_seconds / self.global_batch

    def keep_targets(self, indices: Sequence[int]) -> "StageCandidate":
        """Return the candidate with some of the targets only."""
        rows = list(indices)
        lrs = tuple(self.lrs[index] for index in rows)
        return self._replace(lrs=lrs, examples=self.examples[rows], example_draws=self.example_draws[rows])

    @property
    def stage_examples(self) -> FloatArray:
        """Examples of each stage: those of its target less those of the target before."""
        return np.diff(self.examples, prepend=0.0)

    @property
    def stage_seconds(self) -> FloatArray:
        """Predicted seconds of each stage of training."""
        return self.stage_examples * self.example_seconds


def plan_batch_schedule(
    targets: Sequence[float], constant: StageCandidate, candidates: Sequence[StageCandidate]
) -> BatchSchedule | None:
    """Return the fastest schedule to the targets, given the easiest first; None if they make no two stages.

    A target counts if the constant plan needs more examples for each harder one, and a candidate if it does so too:
    otherwise the evaluations were too far apart, or the fits too rough, to tell the stages apart.
    """
    indices = find_distinct_targets(constant.examples)
    if len(indices) < 2:
        return None
    kept_targets = [targets[index] for index in indices]
    constant = constant.keep_targets(indices)
    others = (candidate.keep_targets(indices) for candidate in candidates)
    settings = [constant, *(candidate for candidate in others if (candidate.stage_examples > 0).all())]
    chosen = choose_settings(settings)
    stages = tuple(
        build_stage(target, setting, index)
        for index, (target, setting) in enumerate(zip(kept_targets, chosen, strict=True))
    )
    return BatchSchedule(
        stages=stages,
        seconds=sum(stage.seconds for stage in stages),
        constant_seconds=float(constant.examples[-1] * constant.example_seconds),
        faster_share=float(np.mean(schedule_seconds_draws(chosen) < schedule_seconds_draws([constant] * len(chosen)))),
    )


def find_distinct_targets(examples: FloatArray) -> list[int]:
    """Return the indices of targets, the last among them, each of which needs fewer examples than the next of them."""
    indices = [len(examples) - 1]
    for index in range(len(examples) - 2, -1, -1):
        if 0 < examples[index] < examples[indices[-1]]:
            indices.append(index)
    return indices[::-1]


def choose_settings(settings: Sequence[StageCandidate]) -> list[StageCandidate]:
    """Return the setting of each stage that together take the least time, with a batch that never shrinks.

    Dynamic programming over the settings in the order of their batch; of equally fast ones the smallest batch is taken.
    """
    ordered = sorted(settings, key=lambda setting: setting.global_batch)
    seconds = np.stack([setting.stage_seconds for setting in ordered])
    total, earlier_choices = np.zeros(len(ordered)), []
    for stage_seconds in seconds.T:
        lowest = np.array([int(np.argmin(total[: find_last(ordered, index) + 1])) for index in range(len(ordered))])
        earlier_choices.append(lowest)
        total = total[lowest] + stage_seconds
    index = int(np.argmin(total))
    chosen = [index]
    for lowest in earlier_choices[:0:-1]:
        index = int(lowest[index])
        chosen.append(index)
    return [ordered[index] for index in reversed(chosen)]


def find_last(ordered: Sequence[StageCandidate], index: int) -> int:
    """Return the index of the last setting with the same global batch as the one at `index`."""
    batch = ordered[index].global_batch
    return max(other for other in range(index, len(ordered)) if ordered[other].global_batch == batch)


def build_stage(target: float, setting: StageCandidate, index: int) -> ScheduleStage:
    """Build the stage at an index, which ends at a target."""
    return ScheduleStage(
        until=target,
        nodes=setting.nodes,
        workers=setting.workers,
        batch=setting.batch,
        global_batch=setting.global_batch,
        lr=setting.lrs[index],
        examples=float(setting.stage_examples[index]),
        seconds=float(setting.stage_seconds[index]),
    )


def schedule_seconds_draws(settings: Sequence[StageCandidate]) -> FloatArray:
    """Return the seconds of a schedule with these settings in each draw of the fits."""
    stages = [
        np.diff(setting.example_draws, axis=0, prepend=0.0)[index] * setting.example_seconds
        for index, setting in enumerate(settings)
    ]
    return np.asarray(np.sum(stages, axis=0))
