"""Training program with known curves, for sweeps by command: it takes its time and reports, and learns nothing.

Examples to the target: 2,000 (1 + B / 64), times 15 % for each octave that the learning rate is off, squared, with 10 %
noise between seeds. A step takes 1 ms + 20 us per example. The metric rises in a straight line to 1 at the target.
"""

import argparse
import math
import random
import time

import equipoise

TARGET = 1.0
MIN_EXAMPLES = 2000
CRITICAL_BATCH = 64
LR_OF_32 = 0.05  # the best learning rate at a batch of 32; it grows with the square root of the batch


def best_lr(batch_size: int) -> float:
    """Return the learning rate that needs the fewest examples."""
    return LR_OF_32 * math.sqrt(batch_size / 32)


def mean_examples_to_target(batch_size: int, lr: float) -> float:
    """Return the examples that a run needs, without the noise between seeds."""
    octaves = math.log2(lr / best_lr(batch_size))
    return MIN_EXAMPLES * (1 + batch_size / CRITICAL_BATCH) * 1.15 ** (octaves**2)


def step_seconds(batch_size: int) -> float:
    """Return the seconds of a step."""
    return 1e-3 + 20e-6 * batch_size


def examples_to_target(batch_size: int, lr: float, seed: int) -> float:
    """Return the examples that a run needs, which its seed scatters."""
    noise = math.exp(0.1 * random.Random(f"{batch_size} {lr} {seed}").gauss(0, 1))  # noqa: S311 - no secret
    return mean_examples_to_target(batch_size, lr) * noise


def main() -> None:
    """Take steps until well after the target."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    needed = examples_to_target(options.batch_size, options.lr, options.seed)
    seen, start = 0, time.monotonic()
    equipoise.report(examples=0)
    while seen < 3 * needed:
        for _ in range(max(1, 256 // options.batch_size)):
            seen += options.batch_size
            due = start + seen / options.batch_size * step_seconds(options.batch_size)
            time.sleep(max(0.0, due - time.monotonic()))
        equipoise.report(examples=seen, metric=TARGET * seen / needed)


if __name__ == "__main__":
    main()
