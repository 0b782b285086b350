"""What a model that has learned the source set saves on a machine's few pictures: python -m benchmarks.finetune.

Trains the source model once, then every start at several learning rates, and shows each at its best: accuracy on the
test split against examples seen, mean and 95 % interval over seeds.
"""

import json
import statistics
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save_file
from scipy import stats

from equipoise.config import TrainConfig
from equipoise.hardware import describe_hardware
from equipoise.training.loop import Training
from equipoise.workloads import Split, Workload, load_workload
from equipoise.workloads.vending.products import MACHINE_PRODUCTS, SHARED_PRODUCTS

RATES = (0.003, 0.01, 0.03, 0.1)
SHOWN = (60, 120, 300, 600, 1200, 2400, 4800, 9600)  # examples seen: a pass is 300
EARLY = SHOWN[:4]
STARTS = {
    "from scratch": {},
    "whole network tuned": {"init_from": "", "reuse_head": False},
    "the same, rows reused": {"init_from": "", "reuse_head": True},
    "bottom frozen, rows reused": {"init_from": "", "reuse_head": True, "freeze_stages": 1},
}


@dataclass(frozen=True)
class Curve:
    """Accuracy after each number of examples in SHOWN: on all classes, and on those that the source has."""

    every: list[float]
    shared: list[float]


def main() -> None:
    """Print the table."""
    options = ArgumentParser(description=__doc__)
    options.add_argument("--model", default="lenet")
    options.add_argument("--source-examples", type=int, default=40_000)
    options.add_argument("--source-lr", type=float, default=0.05)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--threads", type=int, default=2)
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    print(", ".join(f"{name} {value}" for name, value in describe_hardware(torch.device("cpu")).items()))
    with TemporaryDirectory() as folder:
        print(source(given.model, given.source_examples, given.source_lr, Path(folder)), flush=True)
        starts(given.model, Path(folder), range(given.seeds))
        rows(given.model, Path(folder), range(given.seeds))


def source(name: str, examples: int, lr: float, folder: Path) -> str:
    """Train on the source set and leave the model in `folder`; what came of it."""
    trial = TrainConfig(
        workload="vending-source",
        model=name,
        lr=lr,
        max_examples=examples,
        target=2.0,
        eval_every=examples,
        noise_scale_every=0,
    )
    training = Training(replace(trial, schedule="cosine"))
    for _ in training.laps():
        pass
    weights = {key: value.contiguous() for key, value in training.model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", {"classes": json.dumps(list(training.workload.classes))})
    seconds = sum(lap.seconds for lap in training.finished_laps)
    accuracy = training.evaluate(training.workload.test)
    return f"\nsource: {name} on vending-source, {examples:,} examples, {seconds:.0f} s, test accuracy {accuracy:.3f}\n"


def starts(name: str, folder: Path, seeds: range) -> None:
    """Each start at the rate that is best for it in the end, by the validation split of a seed that is not shown."""
    made = load_workload(TrainConfig(workload="vending", model=name))
    print(f"| start | lr | {' | '.join(f'{count:,} seen' for count in SHOWN)} |\n|---|--:|{'--:|' * len(SHOWN)}")
    for start, changes in STARTS.items():
        trial = begun(name, SHOWN[-1], **changes | ({"init_from": str(folder)} if "init_from" in changes else {}))
        best = max(RATES[1:], key=lambda lr: settled(replace(trial, lr=lr, seed=100), made))
        curves = [curve(replace(trial, lr=best, seed=seed), made, SHOWN).every for seed in seeds]
        print(f"| {start} | {best:g} | {' | '.join(map(shown, zip(*curves, strict=True)))} |", flush=True)


def rows(name: str, folder: Path, seeds: range) -> None:
    """What rows taken over are worth early, at each rate: accuracy with them less without, seed by seed."""
    made = load_workload(TrainConfig(workload="vending", model=name))
    print(f"\n| rows reused less drawn anew | lr | {' | '.join(f'{count:,} seen' for count in EARLY)} |")
    print(f"|---|--:|{'--:|' * len(EARLY)}")
    for lr in RATES:
        trial = begun(name, EARLY[-1], init_from=str(folder), lr=lr)
        with_rows = [curve(replace(trial, seed=seed), made, EARLY) for seed in seeds]
        without = [curve(replace(trial, seed=seed, reuse_head=False), made, EARLY) for seed in seeds]
        for what in ("shared", "every"):
            pairs = [(getattr(a, what), getattr(b, what)) for a, b in zip(with_rows, without, strict=True)]
            gains = [[a - b for a, b in zip(*pair, strict=True)] for pair in pairs]
            which = {"shared": "shared classes", "every": "all classes"}[what]
            print(f"| {which} | {lr:g} | {' | '.join(map(shown, zip(*gains, strict=True)))} |", flush=True)


def begun(name: str, examples: int, **changes: Any) -> TrainConfig:
    """A trial on the machine's pictures that goes on to its cap."""
    return TrainConfig(
        workload="vending",
        model=name,
        warmup=0.5,
        target=2.0,
        max_examples=examples,
        eval_every=300,
        noise_scale_every=0,
        **changes,
    )


def settled(trial: TrainConfig, made: Workload) -> float:
    """Validation accuracy in the end, of a seed that the table does not show."""
    training = Training(trial, made)
    for _ in training.laps():
        pass
    return statistics.mean(lap.metric for lap in training.finished_laps[-5:] if lap.metric is not None)


def curve(trial: TrainConfig, made: Workload, counts: tuple[int, ...]) -> Curve:
    """Accuracy on the test split as examples are seen."""
    few = Split(made.validation.pictures[:10], made.validation.labels[:10])  # laps end often, and are not judged here
    training = Training(replace(trial, eval_every=counts[0]), replace(made, validation=few))
    shared = [MACHINE_PRODUCTS.index(product) for product in SHARED_PRODUCTS]
    some = torch.isin(made.test.labels, torch.tensor(shared))
    assert isinstance(made.test.pictures, torch.Tensor)
    known = Split(made.test.pictures[some], made.test.labels[some])
    every, early = [], []
    for lap in training.laps():
        if len(every) < len(counts) and lap.seen >= counts[len(every)]:
            every.append(training.evaluate(made.test))
            early.append(training.evaluate(known))
    return Curve(every, early)


def shown(values: Sequence[float]) -> str:
    """Mean and half the 95 % interval, in percent."""
    half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5 if values[1:] else 0.0
    return f"{statistics.mean(values):.1%} ± {half:.1%}"


if __name__ == "__main__":
    main()
