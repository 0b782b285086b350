"""Makes of a reference's pictures all that requests are judged by later."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.drift.charts.baseline import Seen, Usual, baseline
from equipoise.drift.features import confidence
from equipoise.drift.features import image_stats as statistics
from equipoise.drift.features.random_fourier import Waves, waves
from equipoise.drift.profiling.corruption_response import AT_ONCE, Engine, signatures
from equipoise.drift.reference.false_alarms import verified
from equipoise.drift.reference.profile import PREFIX, Known, Labelled
from equipoise.drift.reference.thresholds import calibrated

Array = NDArray[Any]

SECONDS = 20.0  # for trying what can happen to the pictures
TRIED = (32, 120)  # pictures: at least, at most
CHANGES = 120  # about so many are tried
SMALLEST = 8  # pixels of a side from which focus, grain and where they lie can be told


@dataclass(frozen=True, eq=False)
class Told:
    """Pictures that the model has not learned from, what it says of them, and what they show."""

    pictures: Tensor
    logits: Array
    features: Array
    labels: NDArray[np.int64]


def arrays(engine: Engine, reference: Told, temperature: float, apart: Told | None = None) -> dict[str, NDArray[Any]]:
    """For reference.npz; of a reference that is too small, the reason why nothing can be told by it."""
    try:
        found = made(engine, reference, temperature, apart)
    except ValueError as error:
        return {f"{PREFIX}why not": np.array(str(error))}
    return found.arrays()


def made(engine: Engine, reference: Told, temperature: float, apart: Told | None = None) -> Known:
    """What a reference tells; on pictures kept apart, if given, false alarms are counted."""
    height, width = reference.pictures.shape[2:]
    if min(height, width) < SMALLEST:
        raise ValueError(f"pictures of {width}x{height} are too small to be watched: {SMALLEST} pixels are needed")
    classes = reference.logits.shape[1]
    directions = waves(reference.features)
    seen = looked_at(reference, directions, temperature)
    held = baseline(seen, classes, directions, temperature)
    some = evenly(len(reference.labels), affordable(engine, reference.pictures))
    found = calibrated(seen, reference.labels, classes)
    return Known(
        held,
        found,
        signatures(engine, reference.pictures[torch.from_numpy(some)], reference.labels[some], held),
        labelled(seen, reference.labels, held.usual),
        verified(held.usual, found, looked_at(apart, directions, temperature), apart.labels) if apart else None,
    )


def looked_at(some: Told, waves: Waves, temperature: float) -> Seen:
    """A few at a time: as numbers, pictures take four times the room."""
    parts = [statistics.statistics(few.numpy()) for few in some.pictures.split(AT_ONCE)]
    figures = np.concatenate([np.concatenate(parts), confidence.confidence(some.logits, temperature)], 1)
    return Seen(figures, some.logits.argmax(1), waves(some.features))


def affordable(engine: Engine, pictures: Tensor) -> int:
    """How many pictures can be changed in every way and answered in the time there is."""
    begun = time.perf_counter()
    engine(pictures[:AT_ONCE])
    each = (time.perf_counter() - begun) / min(AT_ONCE, len(pictures))
    return int(np.clip(SECONDS / (CHANGES * each), *TRIED))


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """Up to `most` places."""
    return np.linspace(0, count - 1, min(count, most)).astype(np.int64)


def labelled(seen: Seen, labels: NDArray[np.int64], held: Usual) -> Labelled:
    """By what pictures show, which differs from what they are called where the model errs."""
    classes = len(held.counts)
    member = np.zeros((classes, len(labels)))
    member[labels, np.arange(len(labels))] = 1
    shown = member.sum(1)
    table = member @ (seen.classes[:, None] == np.arange(classes))
    each = np.maximum(shown, 1)[:, None]
    confusion = np.where(shown > 0, (table / each).T, np.eye(classes))
    rest = seen.waves - held.waves[seen.classes]
    return Labelled(
        shown / len(labels), confusion, member @ held.scores(seen) / each, (member @ rest / each).astype("f4")
    )
