"""Predict the steps of several workers that share a batch, from steps without an exchange and the exchange by itself.

    seconds of a step of n workers at batch B = T1(B / n) + exchange that the backward pass does not hide

T1 is the time of one worker's step while the others take such steps of their own: workers of one machine share its
memory, and often more. On a CPU nothing is hidden: the exchange takes the processors' time from the pass that it runs
beside. On a GPU the backward pass hides all but the last bucket of gradients, as far as it lasts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from equipoise.planning.device_comparison.comparison_report import BatchTimings, CrossingBatch, SharedSteps
from equipoise.planning.device_comparison.crossing_batch import find_crossing
from equipoise.type_aliases import FloatArray

BACKWARD_SHARE = 2 / 3  # of a step's computing: two products for each one of the forward pass


@dataclass(frozen=True, kw_only=True)
class MeasuredTurns:
    """Seconds of steps and exchanges, by turn."""

    workers: int
    """workers that share a batch"""
    one: Mapping[int, Sequence[float]]
    """seconds of a step of one worker by batch: those that are compared, and the part of each that a worker has"""
    beside: Mapping[int, Sequence[float]]
    """seconds of a step of one worker while the others take theirs, without an exchange, by the part that it has"""
    exchange: Sequence[float]
    """seconds of the exchange of all gradients by itself"""
    last_bucket: Sequence[float]
    """seconds of the exchange of the last bucket, which no backward pass hides"""
    several: Mapping[int, Sequence[SharedSteps]]
    """steps of several workers by batch of all of them; empty where they were not measured"""
    is_hidden: bool
    """whether the backward pass can hide the exchange: on a GPU"""


@dataclass(frozen=True, kw_only=True)
class ComparedSteps:
    """Seconds of a step by batch, and from which batch on several workers pay."""

    rows: tuple[BatchTimings, ...]
    predicted_crossing: CrossingBatch
    measured_crossing: CrossingBatch | None


def compare_steps(batches: Sequence[int], turns: MeasuredTurns) -> ComparedSteps:
    """Predict the steps of several workers at each batch, and find from which on they pay."""
    one = stack_turns([turns.one[batch] for batch in batches])
    parts = stack_turns([turns.one[batch // turns.workers] for batch in batches])
    beside = stack_turns([turns.beside[batch // turns.workers] for batch in batches])
    exposed = expose_exchange(beside, turns)
    predicted = beside + exposed
    measured = None
    if turns.several:
        several = stack_turns([[steps.seconds for steps in turns.several[batch]] for batch in batches])
        measured = find_crossing(batches, one, several)
    rows = tuple(
        BatchTimings(
            batch=batch,
            one_seconds=float(np.median(one[:, column])),
            part_seconds=float(np.median(parts[:, column])),
            beside_seconds=float(np.median(beside[:, column])),
            predicted=SharedSteps(
                seconds=float(np.median(predicted[:, column])),
                exchange_seconds=float(np.median(exposed[:, column])),
            ),
            measured=summarize_steps(turns.several[batch]) if turns.several else None,
        )
        for column, batch in enumerate(batches)
    )
    return ComparedSteps(
        rows=rows, predicted_crossing=find_crossing(batches, one, predicted), measured_crossing=measured
    )


def stack_turns(columns: Sequence[Sequence[float]]) -> FloatArray:
    """Return a table with a row for each turn and a column for each batch."""
    return np.stack([np.array(column, float) for column in columns], axis=1)


def expose_exchange(part_seconds: FloatArray, turns: MeasuredTurns) -> FloatArray:
    """Return the seconds of the exchange that come on top of computing, by turn and batch."""
    exchange, last = (np.array(seconds, float)[:, None] for seconds in (turns.exchange, turns.last_bucket))
    if not turns.is_hidden:
        return np.asarray(np.broadcast_to(exchange, part_seconds.shape))
    return np.asarray(np.maximum(np.minimum(last, exchange), exchange - BACKWARD_SHARE * part_seconds))


def summarize_steps(turns: Sequence[SharedSteps]) -> SharedSteps:
    """Return the medians of the steps of several turns."""
    return SharedSteps(
        seconds=float(np.median([steps.seconds for steps in turns])),
        exchange_seconds=float(np.median([steps.exchange_seconds for steps in turns])),
    )
