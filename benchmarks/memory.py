"""Memory of a worker: predicted by closed form, by part, against the peak of a step: python -m benchmarks.memory.

Each setting trains one step in gloo processes of its own: --sharding full --workers 4. Prints megabytes.
"""

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import torch
from torch import nn

from equipoise.config import Precision, TrainConfig
from equipoise.planning.memory.model_sizes import ModelSizes
from equipoise.planning.memory.worker_memory import WorkerMemory, predict_worker_memory
from equipoise.training.loop import Training
from equipoise.training.memory.measure_sizes import measure_model_sizes
from equipoise.workloads import Split, Workload, load_workload
from tests.support.gloo import run_with_gloo

MEGABYTE = 1e6
EXAMPLES, CLASSES = 256, 10
CPU = torch.device("cpu")


def build_workload(name: str, shape: tuple[int, ...], model: Any) -> Workload:
    """Return a workload of noise in ten classes."""

    def build_split(count: int) -> Split:
        return Split(torch.randn(count, *shape), torch.randint(0, CLASSES, (count,)))

    train, other = build_split(EXAMPLES), build_split(CLASSES)
    return Workload(
        name=name,
        train=train,
        validation=other,
        reference=other,
        test=other,
        model=model,
        target=None,
        loss=nn.functional.cross_entropy,
        metric=lambda scores, targets: (scores.argmax(1) == targets).float(),
        classes=[str(label) for label in range(CLASSES)],
    )


def resnet(config: TrainConfig | None = None) -> Workload:
    """ResNet-18 at 64 pixels."""
    from torchvision.models import resnet18

    return build_workload("resnet", (3, 64, 64), lambda: resnet18(weights=None, num_classes=CLASSES))


def mlp(config: TrainConfig | None = None) -> Workload:
    """Four dense layers of width 1,024 with dropout."""

    def build_model() -> nn.Module:
        widths = (512, 1024, 1024, 1024)
        layers = [(nn.Linear(inputs, outputs), nn.ReLU(), nn.Dropout(0.1)) for inputs, outputs in pairwise(widths)]
        return nn.Sequential(*(layer for group in layers for layer in group), nn.Linear(widths[-1], CLASSES))

    return build_workload("mlp", (512,), build_model)


CASES = {
    "resnet": TrainConfig(workload="benchmarks.memory:resnet", batch_size=16),
    "gpt": TrainConfig(workload="text", model="gpt:4x128", batch_size=8),
    "mlp": TrainConfig(workload="benchmarks.memory:mlp", batch_size=32),
    "lenet": TrainConfig(workload="digits", batch_size=32),
}
WITH_BLOCKS = "resnet", "gpt"


def main() -> None:
    """Print a row for each setting: measured, predicted, their ratio, and what is predicted by part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sharding", default="none")
    parser.add_argument("--pipeline-schedule", default="1f1b")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--models", nargs="+", default=list(CASES), choices=list(CASES))
    arguments = parser.parse_args()
    print("| model | optimizer | accumulation | precision | recompute | measured | predicted | ratio |", end=" ")
    print(" | ".join(WorkerMemory._fields), "|\n|---|---|--:|---|---|--:|--:|--:|" + "--:|" * len(WorkerMemory._fields))
    for name in arguments.models:
        case = replace(
            CASES[name],
            sharding=arguments.sharding,
            pipeline_schedule=arguments.pipeline_schedule,
            workers=arguments.workers,
            max_examples=1 << 20,
            noise_scale_every=0,
        )
        for config in list_settings(case, has_blocks=name in WITH_BLOCKS):
            print_row(name, config)


def list_settings(case: TrainConfig, has_blocks: bool) -> Iterator[TrainConfig]:
    """Yield all combinations of optimizer, accumulation, precision and recomputed blocks."""
    precisions: tuple[Precision, ...] = "fp32", "bf16"
    options = ("sgd", "adamw"), (1, 2), precisions, (False, True) if has_blocks else (False,)
    for optimizer, accumulation, precision, recompute in product(*options):
        yield replace(
            case, optimizer=optimizer, grad_accumulation=accumulation, precision=precision, recompute=recompute
        )


def print_row(name: str, config: TrainConfig) -> None:
    """Measure a setting in processes of its own, and print it beside the prediction."""
    with tempfile.TemporaryDirectory() as folder:
        peaks = run_with_gloo(config.workers, Path(folder), measure_step, config)
    sizes: ModelSizes = peaks[0][1]
    measured = max(peak for peak, _ in peaks)
    memory = predict_worker_memory(sizes, config)
    options = f"{config.optimizer} | {config.grad_accumulation} | {config.precision} | {config.recompute}"
    totals = f"{measured / MEGABYTE:.2f} | {memory.total / MEGABYTE:.2f} | {memory.total / measured:.3f}"
    print(
        f"| {name} | {options} | {totals} |", " | ".join(f"{part / MEGABYTE:.2f}" for part in memory), "|", flush=True
    )


def measure_step(config: TrainConfig) -> tuple[int, ModelSizes]:
    """Return the peak of the first step on this worker, and the sizes of the model."""
    workload = load_workload(config)
    training = Training(config, workload)
    boundaries = getattr(training.sharded, "boundaries", None)  # of a pipeline: cuts by time differ from run to run
    sizes = measure_model_sizes(config, workload, CPU, boundaries)
    training.prepare_all_reduce()
    training.steps.begin(training.loader, training.step)
    training.peak_memory.begin_lap(training.sharded, training.steps)
    training.peak_memory.take_steps(training.take_steps, training.steps.interval)
    return training.peak_memory.bytes or 0, sizes


if __name__ == "__main__":
    main()
