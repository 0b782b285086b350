"""Whether a model stays quiet and right after three adaptations: python -m benchmarks.drift.three_adaptations

A model of crops from two photographs meets a warm light, then a dark one, then a lens slightly out of focus, and is
adapted to each by `jobs.adapt`. At the end come 1,000 requests under each of the four conditions, and mixed ones. The
accuracy under each is compared with the best of the bundles so far.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from benchmarks.drift.photo_crops import (
    ImageChange,
    blur_by,
    draw_crops,
    measure_accuracy,
    multiply_channels,
    train_and_publish,
)
from benchmarks.drift.request_streams import DirectStream
from equipoise.bundle.bundle import load_bundle
from equipoise.hardware import describe_hardware

CHANGES: dict[str, ImageChange] = {
    "warm": multiply_channels((1.25, 1.0, 0.62)),
    "dark": multiply_channels((0.5, 0.5, 0.5)),
    "blurred": blur_by(1.0),
}
CLEAN_REQUESTS, CHANGED_REQUESTS, REQUESTS_BY_PHASE, RUN_IMAGES = 600, 1600, 1000, 20
ACCURACY_IMAGES, MAX_ACCURACY_LOSS = 2000, 0.02


@dataclass
class AdaptationsOutcome:
    """What happened in one run, by change and by condition."""

    seed: int
    causes: dict[str, str | None] = field(default_factory=dict)
    """cause of the verdict under each change"""
    adapted: dict[str, int] = field(default_factory=dict)
    """exit status of each adaptation"""
    alarms: dict[str, int | None] = field(default_factory=dict)
    """requests until an alarm under each condition after the last adaptation; None without one"""
    accuracies: dict[str, list[float]] = field(default_factory=dict)
    """accuracy of each bundle, in their order, under each condition"""

    @property
    def is_right(self) -> bool:
        """Return whether all adaptations passed, no alarm came, and no accuracy fell far below its best."""
        is_adapted = len(self.adapted) == len(CHANGES) and not any(self.adapted.values())
        is_accurate = all(max(values) - values[-1] <= MAX_ACCURACY_LOSS for values in self.accuracies.values())
        return is_adapted and is_accurate and bool(self.alarms) and not any(self.alarms.values())


def main() -> None:
    """Adapt several models three times each and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drift.three_adaptations", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder in which the bundles of all runs are kept")
    options = parser.parse_args()
    print(describe_hardware(torch.device("cpu")))
    outcomes = []
    for seed in range(options.first_seed, options.first_seed + options.runs):
        with TemporaryDirectory(prefix="adaptations-") as temporary:
            outcomes.append(adapt_three_times((options.keep or Path(temporary)).absolute() / str(seed), seed))
        print(json.dumps(asdict(outcomes[-1]) | {"right": outcomes[-1].is_right}), flush=True)
    print(f"{sum(outcome.is_right for outcome in outcomes)} of {len(outcomes)} right after three adaptations")


def adapt_three_times(folder: Path, seed: int) -> AdaptationsOutcome:
    """Adapt a model to each change in turn; then send requests under every condition and mixed ones."""
    outcome, rng = AdaptationsOutcome(seed), np.random.default_rng(seed)
    stream = DirectStream(train_and_publish(folder, seed), folder)
    bundles = [stream.bundle]
    for name, change in CHANGES.items():
        stream.send(*draw_crops(rng, CLEAN_REQUESTS))
        stream.send(*draw_crops(rng, CHANGED_REQUESTS, change))
        outcome.causes[name] = stream.verdict().cause
        outcome.adapted[name] = stream.adapt(folder / name, "--epochs", "3", "--accept-blur")
        if outcome.adapted[name]:
            return outcome
        bundles.append(load_bundle(str(folder / name)))
    conditions: dict[str, ImageChange | None] = {"clean": None, **CHANGES}
    for name, condition in conditions.items():
        images, labels = draw_crops(rng, ACCURACY_IMAGES, condition)
        outcome.accuracies[name] = [measure_accuracy(bundle, images, labels) for bundle in bundles]
        outcome.alarms[name] = stream.send(images[:REQUESTS_BY_PHASE], labels[:REQUESTS_BY_PHASE])
    runs = [draw_crops(rng, RUN_IMAGES, list(conditions.values())[index % len(conditions)])
            for index in range(REQUESTS_BY_PHASE // RUN_IMAGES)]  # fmt: skip
    outcome.alarms["mixed"] = stream.send(*(torch.cat(parts) for parts in zip(*runs, strict=True)))
    return outcome


if __name__ == "__main__":
    start = time.monotonic()
    main()
    print(f"{time.monotonic() - start:.0f} s")
