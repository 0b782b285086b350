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
BEST_LR = 0.05  # at a batch of 32, growing with its square root


def examples_to_target(batch_size: int, lr: float, seed: int) -> float:
    """Return the examples that a run needs, which its seed scatters."""
    octaves = math.log2(lr / (BEST_LR * math.sqrt(batch_size / 32)))
    noise = math.exp(0.1 * random.Random(f"{batch_size} {lr} {seed}").gauss(0, 1))  # noqa: S311 - no secret
    return 2000 * (1 + batch_size / 64) * 1.15 ** (octaves**2) * noise


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
            time.sleep(
                max(0.0, start + seen / options.batch_size * (1e-3 + 20e-6 * options.batch_size) - time.monotonic())
            )
        equipoise.report(examples=seen, metric=TARGET * seen / needed)


if __name__ == "__main__":
    main()
