"""The learning rate over a run, as a share of the one asked for."""

import math

from equipoise.config import Schedule

RISE, START = 0.3, 1 / 25  # of one-cycle: the part of the run that rises, and the share it rises from


def share(schedule: Schedule, seen: int, warmup: float, cap: int) -> float:
    """Share of the learning rate for the step that ends at `seen` examples of at most `cap`.

    It is a function of examples, not of epochs or steps: every global batch meets the
    same curve, and a resumed run needs only its place on it.
    """
    if schedule == "one-cycle":
        top = RISE * cap
        return START + (1 - START) * seen / top if seen < top else falling(seen - top, cap - top)
    if seen < warmup:
        return seen / warmup
    return falling(seen - warmup, cap - warmup) if schedule == "cosine" else 1.0


def falling(done: float, whole: float) -> float:
    """Half a cosine from 1 down to 0."""
    return 0.5 * (1 + math.cos(math.pi * min(1.0, done / whole))) if whole > 0 else 0.0
