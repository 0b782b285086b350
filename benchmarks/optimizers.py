"""Fused kernels called directly against torch.optim's fused optimizers: python -m benchmarks.optimizers.

Both train LeNet on digits in batches of 32, on one thread; ratios of CPU seconds within a round.
"""

import functools
import statistics
import time
from collections.abc import Callable

import torch

from equipoise.config import TrainConfig
from equipoise.hardware import describe_hardware
from equipoise.registries.optimizer_registry import OPTIMIZERS, OptimizerEntry
from equipoise.training.loop import Training

ROUNDS, LOOP_STEPS, ALONE_STEPS = 9, 300, 2000
TORCH_CLASSES = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}


def main() -> None:
    """Print a table of CPU microseconds for each optimizer, of a whole step and of the optimizer's part alone."""
    torch.set_num_threads(1)
    print(describe_hardware(torch.device("cpu")))
    print(f"\nCPU microseconds, medians of {ROUNDS} rounds\n")
    print("| optimizer | | kernels | torch.optim | ratio | lowest | highest |\n|---|---|--:|--:|--:|--:|--:|")
    for name in TORCH_CLASSES:
        kernels, start = build_training(name), time.process_time()
        torch_own = build_torch_training(name)
        print(f"| {name} | start | | {1e6 * (time.process_time() - start):,.0f} | | | |", flush=True)
        for part, take_steps in (("whole step", train_steps), ("alone", step_alone)):
            print_row(f"| {name} | {part} |", take_steps, kernels, torch_own)


def build_training(name: str) -> Training:
    """Build a training run with an optimizer of the registry."""
    never = 10**9
    config = TrainConfig(workload="digits", optimizer=name, lr=0.01, weight_decay=1e-4, target=2.0, max_examples=never)
    return Training(config)


def build_torch_training(name: str) -> Training:
    """Build the same training run with the fused optimizer of torch.optim."""
    entry = OPTIMIZERS[name]
    torch.optim.FusedByTorch = functools.partial(TORCH_CLASSES[name], fused=True)  # type: ignore[attr-defined]
    OPTIMIZERS[name] = OptimizerEntry("torch.optim:FusedByTorch", entry.option_by_argument)
    try:
        return build_training(name)
    finally:
        OPTIMIZERS[name] = entry


def train_steps(training: Training) -> int:
    """Train at least LOOP_STEPS steps and return their number."""
    first = training.step
    for _ in training.laps():
        training.finished_laps.clear()  # the loop looks at all of them after each lap
        if training.step - first >= LOOP_STEPS:
            break
    return training.step - first


def step_alone(training: Training) -> int:
    """Take ALONE_STEPS steps along the last gradients and return their number."""
    for _ in range(ALONE_STEPS):
        training.optimizer.step(1e-6)
    return ALONE_STEPS


def print_row(title: str, take_steps: Callable[[Training], int], kernels: Training, torch_own: Training) -> None:
    """Print the microseconds of a step in both cases, and their ratio; the first round is the warm-up."""
    pairs = []
    for index in range(ROUNDS + 1):
        order = (kernels, torch_own) if index % 2 else (torch_own, kernels)
        seconds = [measure_step_seconds(take_steps, training) for training in order]
        pairs.append(seconds if index % 2 else seconds[::-1])
    pairs = pairs[1:]
    ratios = [their_seconds / our_seconds for our_seconds, their_seconds in pairs]
    times = " | ".join(f"{1e6 * statistics.median(seconds):,.0f}" for seconds in zip(*pairs, strict=True))
    print(title, times, "|", " | ".join(f"{f(ratios):.3f}" for f in (statistics.median, min, max)), "|", flush=True)


def measure_step_seconds(take_steps: Callable[[Training], int], training: Training) -> float:
    """Return the CPU seconds of one of the steps."""
    start = time.process_time()
    steps = take_steps(training)
    return (time.process_time() - start) / steps


if __name__ == "__main__":
    main()
