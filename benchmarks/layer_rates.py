"""Cost of steps with a rate for each layer, over the optimizers they are made of: python -m benchmarks.layer_rates.

LARS against SGD and LAMB against AdamW, on one thread; ratios of CPU seconds within a round, in turns.
"""

import statistics
import time
from typing import Any

import torch

from equipoise.config import TrainConfig
from equipoise.hardware import describe_hardware
from equipoise.training.loop import Training

ROUNDS = 9
PAIRS = (("sgd", "lars"), ("adamw", "lamb"))
CASES: dict[str, tuple[dict[str, Any], int]] = {
    "digits, LeNet, 32 a step": ({"workload": "digits", "batch_size": 32}, 200),
    "digits, LeNet, 512 a step": ({"workload": "digits", "batch_size": 512}, 20),
    "text, gpt:2x64, 16 a step": ({"workload": "text", "model": "gpt:2x64", "batch_size": 16}, 20),
    "vending, ResNet-18, 8 a step": ({"workload": "vending", "model": "resnet18", "batch_size": 8}, 3),
}
"""options of each case, and the steps of a round"""
ALONE_STEPS = 50
NEVER = 10**9


def main() -> None:
    """Print a table of the ratios, of whole steps and of the optimizer's part alone."""
    torch.set_num_threads(1)
    print(describe_hardware(torch.device("cpu")))
    print(f"\nCPU milliseconds, medians of {ROUNDS} rounds; ratios with their range\n")
    print("| case | part | plain | with a rate for each layer | ratio |\n|---|---|--:|--:|--:|")
    for name, (options, steps) in CASES.items():
        for plain, layered in PAIRS:
            trainings = [build_training(options, optimizer) for optimizer in (plain, layered)]
            print_row(f"| {name} | {layered} over {plain}, whole step |", trainings, steps, alone=False)
            print_row(f"| {name} | {layered} over {plain}, alone |", trainings, ALONE_STEPS, alone=True)


def build_training(options: dict[str, Any], optimizer: str) -> Training:
    """Build a run that has taken its first steps."""
    config = TrainConfig(
        **options,
        optimizer=optimizer,
        lr=1e-4,
        weight_decay=1e-4,
        clip_norm=0.0,
        max_examples=NEVER,
        noise_scale_every=0,
    )
    training = Training(config)
    training.steps.begin(training.loader, 0)
    training.take_steps(2)
    return training


def print_row(title: str, trainings: list[Training], steps: int, *, alone: bool) -> None:
    """Print the milliseconds of a step of both runs, which take turns, and their ratio; the first round is left out."""
    rounds = []
    for index in range(ROUNDS + 1):
        order = trainings if index % 2 else trainings[::-1]
        times = [measure_step(training, steps, alone=alone) for training in order]
        rounds.append(times if index % 2 else times[::-1])
    rounds = rounds[1:]
    ratios = sorted(layered / plain for plain, layered in rounds)
    medians = [1000 * statistics.median(times) for times in zip(*rounds, strict=True)]
    print(
        f"{title} {medians[0]:.3f} | {medians[1]:.3f} | {statistics.median(ratios):.2f}"
        f" ({ratios[0]:.2f} to {ratios[-1]:.2f}) |",
        flush=True,
    )


def measure_step(training: Training, steps: int, *, alone: bool) -> float:
    """Return the CPU seconds of a step, or of the optimizer along the last gradients."""
    start = time.process_time()
    if alone:
        for _ in range(steps):
            training.steps.optimizer.step(1e-6)
    else:
        training.take_steps(steps)
    return (time.process_time() - start) / steps


if __name__ == "__main__":
    main()
