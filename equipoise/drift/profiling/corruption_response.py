"""Tries on a reference's pictures what may happen to them later."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor

from equipoise.drift.charts.baseline import Baseline
from equipoise.drift.corruptions import kinds
from equipoise.drift.reference.signatures import Signatures

Array = NDArray[Any]
Engine = Callable[[Tensor], tuple[Tensor, Tensor]]

AT_ONCE = 64  # pictures


def signatures(engine: Engine, pictures: Tensor, labels: NDArray[np.int64], held: Baseline) -> Signatures:
    """On some pictures of the reference, whose labels are known."""
    tried = [kind for kind in kinds() if pictures.shape[1] == 3 or not kind.colours]
    before, plain, *clean = judged(engine, pictures, labels, held)
    rows = [
        (place, size, *judged(engine, kind.change(pictures, size), labels, held))
        for place, kind in enumerate(tried)
        for size in kind.sizes
    ]
    kind, size, scores, shifts, accuracy, confidence = (np.array(column) for column in zip(*rows, strict=True))
    names = np.array([(one.cause, one.detail, one.unit) for one in tried])
    none = np.array([one.none for one in tried])
    return Signatures(
        kind,
        names,
        none,
        size,
        scores - before,
        shifts - plain,
        accuracy,
        confidence,
        np.array(clean),
        np.array(len(labels)),
    )


def judged(
    engine: Engine, pictures: Tensor, labels: NDArray[np.int64], held: Baseline
) -> tuple[Array, Array, float, float]:
    """Mean scores and shifts of pictures, and how well the model does on them, in truth and by what it says."""
    parts = [tuple(one.numpy() for one in engine(some.contiguous())) for some in pictures.split(AT_ONCE)]
    logits, features = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
    seen = held.seen(pictures.numpy(), logits, features)
    scores, shifts = (each(seen).mean(0) for each in (held.usual.scores, held.usual.shifts))
    says = softmax(logits / held.temperature, 1).max(1).mean()
    return scores, shifts, float((logits.argmax(1) == labels).mean()), float(says)
