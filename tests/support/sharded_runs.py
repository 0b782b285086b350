"""Runs of several processes whose workers hold parts of the model, and their state as whole tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from equipoise.config import TrainConfig
from equipoise.runs.record import Lap
from equipoise.training.loop import Training
from equipoise.training.sharding.state_parts import JoinedState, StatePart
from tests.support.gloo import run_with_gloo


@dataclass(frozen=True)
class ShardedRun:
    """What a run left: the state of all its workers as whole tensors, and its laps."""

    state: Mapping[str, Tensor]
    laps: list[Lap]


def train_sharded(
    processes: int,
    folder: Path,
    configs: Sequence[TrainConfig],
    starts: Sequence[ShardedRun | None] = (),
    num_laps: int | None = None,
) -> list[ShardedRun]:
    """Train configurations one after another in the same processes, to the end or for `num_laps` laps.

    Each goes on from the run in its place of `starts`, whatever processes and sharding that had.
    """
    starts = starts or [None] * len(configs)
    by_rank = run_with_gloo(processes, folder, train_parts, list(configs), list(starts), num_laps)
    return [
        ShardedRun(dict(JoinedState([part for part, _ in ranks])), ranks[0][1]) for ranks in zip(*by_rank, strict=True)
    ]


def train_parts(
    configs: Sequence[TrainConfig], starts: Sequence[ShardedRun | None], num_laps: int | None
) -> list[tuple[StatePart, list[Lap]]]:
    """Train in this process, and return what it would save of each run."""
    results = []
    for config, start in zip(configs, starts, strict=True):
        training = Training(config)
        if start is not None:
            training.load_state_dict(start.state, start.laps)
        for _ in islice(training.laps(), num_laps):
            pass
        part = training.saved_state()
        copies = {name: value.clone() for name, value in part.tensors.items()}  # which training would change
        results.append((replace(part, tensors=copies), training.finished_laps))
    return results


def largest_difference(first: Mapping[str, Tensor], second: Mapping[str, Tensor], prefix: str = "model.") -> float:
    """Return the largest difference of the tensors with a prefix, as a fraction of the largest number among them."""
    assert first.keys() == second.keys()
    names = [name for name in first if name.startswith(prefix)]
    assert all(first[name].shape == second[name].shape for name in names)
    scale = max(float(second[name].abs().max()) for name in names)
    return max(float((first[name] - second[name]).abs().max()) for name in names) / scale


def are_equal(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    """Return whether two states have the same tensors to the bit."""
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
