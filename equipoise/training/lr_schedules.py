"""The learning rate over a run, as a share of the one asked for."""

import math

from equipoise.config import ScheduleName

ONE_CYCLE_WARMUP, ONE_CYCLE_START_SCALE = (
    0.3,
    1 / 25,
)  # of one-cycle: the part of the run that rises, and the share it rises from


def lr_scale(schedule: ScheduleName, examples_seen: int, warmup_examples: float, max_examples: int) -> float:
    """Share of the learning rate for the step that ends at `seen` examples of at most `cap`.

    It is a function of examples, not of epochs or steps: every global batch meets the
    same curve, and a resumed run needs only its place on it.
    """
    if schedule == "one-cycle":
        top = ONE_CYCLE_WARMUP * max_examples
        return (
            ONE_CYCLE_START_SCALE + (1 - ONE_CYCLE_START_SCALE) * examples_seen / top
            if examples_seen < top
            else cosine_decay(examples_seen - top, max_examples - top)
        )
    if examples_seen < warmup_examples:
        return examples_seen / warmup_examples
    return (
        cosine_decay(examples_seen - warmup_examples, max_examples - warmup_examples) if schedule == "cosine" else 1.0
    )


def cosine_decay(position: float, length: float) -> float:
    """Half a cosine from 1 down to 0."""
    return 0.5 * (1 + math.cos(math.pi * min(1.0, position / length))) if length > 0 else 0.0
