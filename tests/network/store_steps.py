"""Steps of the training loop between simulated hosts, timed and weighed; `gloo_hosts` runs it in each worker."""

import math
from pathlib import Path
from typing import Any, TypedDict

import torch.distributed as dist

from equipoise.config import TrainConfig
from equipoise.training.loop import Training

STATISTICS_FOLDER = Path("/sys/class/net/eth0/statistics")  # the link of a simulated host


class StepFigures(TypedDict):
    """What a worker has measured of its steps."""

    seconds: float
    """seconds of a step"""
    examples_per_second: float
    """of all workers"""
    counted_bytes: float
    """bytes that this host sends in a step, as the kernel counts them"""
    recorded_bytes: float
    """bytes out of the worker that sends most, as the lap says"""


def measure_runs(runs: list[dict[str, Any]], steps: int) -> list[StepFigures]:
    """Measure runs with these options one after another."""
    return [measure_steps(options, steps) for options in runs]


def measure_steps(options: dict[str, Any], steps: int) -> StepFigures:
    """Return what steps take, over a lap that follows another one; at most 100 are a lap.

    The lap ends with an evaluation, whose sum over workers is counted and not timed.
    """
    config = TrainConfig(**options, workers=dist.get_world_size(), noise_scale_every=0, augment=False, target=2.0)
    examples = steps * config.global_batch
    laps = Training(TrainConfig(**vars(config) | {"max_examples": 2 * examples, "eval_every": examples})).laps()
    next(laps)
    dist.barrier()
    before = read_sent_bytes()
    lap = next(laps)
    dist.barrier()
    sent = read_sent_bytes() - before
    return {
        "seconds": lap.seconds / lap.steps,
        "examples_per_second": lap.examples / lap.seconds,
        "counted_bytes": sent / lap.steps,
        "recorded_bytes": float(lap.sent_bytes or 0),
    }


def train_runs(runs: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Train runs with these options to the target; return examples and seconds of each, infinite if it is missed."""
    return [train_to_target(options) for options in runs]


def train_to_target(options: dict[str, Any]) -> dict[str, float]:
    """Train to the target; return the examples and the seconds of training until there, interpolated in the last lap.

    Seconds are without evaluations.
    """
    training = Training(TrainConfig(**options, workers=dist.get_world_size(), noise_scale_every=0))
    laps = [*training.laps()]
    examples, seconds = training.examples_to_target or math.inf, sum(lap.seconds for lap in laps)
    return {"examples": examples, "seconds": seconds * examples / laps[-1].seen}


def read_sent_bytes() -> int:
    """Return the bytes that this host has sent so far."""
    return int((STATISTICS_FOLDER / "tx_bytes").read_text())
