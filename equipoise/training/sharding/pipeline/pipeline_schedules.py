"""Order in which a stage of a pipeline computes the forward and backward passes of a step's micro-batches."""

from typing import Literal, NamedTuple

from equipoise.registries.sharding_registry import PipelineSchedule

PassKind = Literal["forward", "backward"]


class StagePass(NamedTuple):
    """Forward or backward pass of a micro-batch through a stage."""

    kind: PassKind
    micro: int
    """position of the micro-batch among those of a step, from 0"""


def list_stage_passes(schedule: PipelineSchedule, stage: int, stages: int, micros: int) -> list[StagePass]:
    """Return the passes of a stage in order.

    GPipe (Huang et al., 2019) computes all forward passes first. 1F1B (Narayanan et al., 2019: PipeDream-flush) has at
    most as many micro-batches in flight as there are stages from this one on: it then computes a backward pass for
    each forward pass.
    """
    warmup = micros if schedule == "gpipe" else min(stages - stage, micros)
    passes = [StagePass("forward", micro) for micro in range(warmup)]
    for micro in range(micros):
        passes.append(StagePass("backward", micro))
        if warmup + micro < micros:
            passes.append(StagePass("forward", warmup + micro))
    return passes
