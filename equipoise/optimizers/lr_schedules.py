"""The learning rate over a run, as a fraction of the configured one."""

import math

from equipoise.config import ScheduleName

ONE_CYCLE_WARMUP = 0.3  # fraction of the run in which the learning rate rises
ONE_CYCLE_START_SCALE = 1 / 25  # fraction of the learning rate that it rises from


def lr_scale(schedule: ScheduleName, examples_seen: int, warmup_examples: float, max_examples: int) -> float:
    """Return the fraction of the learning rate for the step that ends at `examples_seen` of `max_examples`.

    It is a function of examples, not of epochs or steps: every global batch meets the
    same curve, and a resumed run needs only its position on it.
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
    """Return half a cosine from 1 at position 0 down to 0 at `length`."""
    return 0.5 * (1 + math.cos(math.pi * min(1.0, position / length))) if length > 0 else 0.0
