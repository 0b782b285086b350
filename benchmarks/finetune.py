"""What fine-tuning a source model saves on the few images of one vending machine: python -m benchmarks.finetune.

Trains the source model once, then every start at several learning rates, and shows each at its best one: accuracy on
the test split against examples seen, mean and 95 % interval over seeds.
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
from equipoise.workloads import ImageWorkload, Split, load_workload
from equipoise.workloads.vending.products import MACHINE_PRODUCTS, SHARED_PRODUCTS

LEARNING_RATES = (0.003, 0.01, 0.03, 0.1)
TABLE_EXAMPLES = (60, 120, 300, 600, 1200, 2400, 4800, 9600)  # examples seen; one pass is 300
EARLY_EXAMPLES = TABLE_EXAMPLES[:4]
STARTS = {
    "from scratch": {},
    "whole network fine-tuned": {"init_from": "", "reuse_head": False},
    "whole network, head rows reused": {"init_from": "", "reuse_head": True},
    "first stage frozen, head rows reused": {"init_from": "", "reuse_head": True, "freeze_stages": 1},
}


@dataclass(frozen=True)
class AccuracyCurve:
    """Accuracy after each number of examples: on all classes, and on those that the source set has too."""

    all_classes: list[float]
    shared_classes: list[float]


def main() -> None:
    """Print the accuracy of each start, and what reused head rows are worth."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--source-examples", type=int, default=40_000)
    parser.add_argument("--source-lr", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(describe_hardware(torch.device("cpu")))
    with TemporaryDirectory() as folder:
        print(
            train_source_model(arguments.model, arguments.source_examples, arguments.source_lr, Path(folder)),
            flush=True,
        )
        compare_starts(arguments.model, Path(folder), range(arguments.seeds))
        compare_head_reuse(arguments.model, Path(folder), range(arguments.seeds))


def train_source_model(name: str, examples: int, lr: float, folder: Path) -> str:
    """Train on the source set, save the model in `folder`, and return a line about its accuracy."""
    config = TrainConfig(
        workload="vending-source",
        model=name,
        lr=lr,
        max_examples=examples,
        target=2.0,
        eval_every=examples,
        noise_scale_every=0,
    )
    training = Training(replace(config, schedule="cosine"))
    for _ in training.laps():
        pass
    weights = {key: value.contiguous() for key, value in training.model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", {"classes": json.dumps(list(training.workload.classes))})
    seconds = sum(lap.seconds for lap in training.finished_laps)
    accuracy = training.evaluate(training.workload.test)
    return f"\nsource: {name} on vending-source, {examples:,} examples, {seconds:.0f} s, test accuracy {accuracy:.3f}\n"


def compare_starts(name: str, folder: Path, seeds: range) -> None:
    """Print the accuracy of each start at its best learning rate, chosen on the validation split with another seed."""
    workload = load_workload(TrainConfig(workload="vending", model=name))
    print(f"| start | lr | {' | '.join(f'{count:,} seen' for count in TABLE_EXAMPLES)} |")
    print(f"|---|--:|{'--:|' * len(TABLE_EXAMPLES)}")
    for start, changes in STARTS.items():
        config = build_config(
            name, TABLE_EXAMPLES[-1], **changes | ({"init_from": str(folder)} if "init_from" in changes else {})
        )
        best = max(
            LEARNING_RATES[1:], key=lambda lr: measure_validation_accuracy(replace(config, lr=lr, seed=100), workload)
        )
        curves = [
            measure_accuracy_curve(replace(config, lr=best, seed=seed), workload, TABLE_EXAMPLES).all_classes
            for seed in seeds
        ]
        print(
            f"| {start} | {best:g} | {' | '.join(map(format_mean_interval, zip(*curves, strict=True)))} |", flush=True
        )


def compare_head_reuse(name: str, folder: Path, seeds: range) -> None:
    """Print the early gain from reused head rows at each learning rate: accuracy with minus without, seed by seed."""
    workload = load_workload(TrainConfig(workload="vending", model=name))
    print(f"\n| head rows reused minus random | lr | {' | '.join(f'{count:,} seen' for count in EARLY_EXAMPLES)} |")
    print(f"|---|--:|{'--:|' * len(EARLY_EXAMPLES)}")
    for lr in LEARNING_RATES:
        config = build_config(name, EARLY_EXAMPLES[-1], init_from=str(folder), lr=lr)
        with_rows = [measure_accuracy_curve(replace(config, seed=seed), workload, EARLY_EXAMPLES) for seed in seeds]
        without = [
            measure_accuracy_curve(replace(config, seed=seed, reuse_head=False), workload, EARLY_EXAMPLES)
            for seed in seeds
        ]
        for field, title in (("shared_classes", "shared classes"), ("all_classes", "all classes")):
            pairs = [(getattr(a, field), getattr(b, field)) for a, b in zip(with_rows, without, strict=True)]
            gains = [[a - b for a, b in zip(*pair, strict=True)] for pair in pairs]
            print(
                f"| {title} | {lr:g} | {' | '.join(map(format_mean_interval, zip(*gains, strict=True)))} |", flush=True
            )


def build_config(name: str, examples: int, **changes: Any) -> TrainConfig:
    """Build the config of a run on the machine's images that continues to its cap of examples."""
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


def measure_validation_accuracy(config: TrainConfig, workload: ImageWorkload) -> float:
    """Return the mean validation accuracy of the last five laps of a run."""
    training = Training(config, workload)
    for _ in training.laps():
        pass
    return statistics.mean(lap.metric for lap in training.finished_laps[-5:] if lap.metric is not None)


def measure_accuracy_curve(config: TrainConfig, workload: ImageWorkload, counts: tuple[int, ...]) -> AccuracyCurve:
    """Return the accuracy on the test split after each number of examples seen."""
    tiny_validation = Split(
        workload.validation.inputs[:10], workload.validation.targets[:10]
    )  # laps end often and are not evaluated here
    training = Training(replace(config, eval_every=counts[0]), replace(workload, validation=tiny_validation))
    shared_indices = [MACHINE_PRODUCTS.index(product) for product in SHARED_PRODUCTS]
    is_shared = torch.isin(workload.test.targets, torch.tensor(shared_indices))
    assert isinstance(workload.test.inputs, torch.Tensor)
    shared_test = Split(workload.test.inputs[is_shared], workload.test.targets[is_shared])
    all_classes, shared_classes = [], []
    for lap in training.laps():
        if len(all_classes) < len(counts) and lap.seen >= counts[len(all_classes)]:
            all_classes.append(training.evaluate(workload.test))
            shared_classes.append(training.evaluate(shared_test))
    return AccuracyCurve(all_classes, shared_classes)


def format_mean_interval(values: Sequence[float]) -> str:
    """Format the mean and half the width of the 95 % interval, in percent."""
    half_width = (
        stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5 if values[1:] else 0.0
    )
    return f"{statistics.mean(values):.1%} ± {half_width:.1%}"


if __name__ == "__main__":
    main()
