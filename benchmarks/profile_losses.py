"""Profiles of steps that lose time in a known way: is it named first, and is the gain without it what was predicted?

Each case is profiled, and then timed in turns with the same steps without what loses the time. All proposals that can
be tried are, to count how often their intervals of 80 % hold. Two workers are two hosts in network namespaces (root).

python -m benchmarks.profile_losses [CASE ...]
"""

import json
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from equipoise.config import TrainConfig
from equipoise.profiling.advice import add_advice
from equipoise.profiling.losses import saved_by_layer, saved_gain
from equipoise.profiling.profile_report import ProfileReport
from equipoise.profiling.profile_steps import ProfileResult, profile_steps
from equipoise.profiling.proposal_trials import try_proposals
from equipoise.profiling.step_turns import measure_gain
from equipoise.profiling.stepped_training import SteppedTraining
from equipoise.workloads import Workload, load_workload
from equipoise.workloads.base import Split
from equipoise.workloads.digits import digits
from tests.network.gloo_hosts import run_on_hosts
from tests.network.hosts import create_lan
from tests.network.wide_model import wide

CPU = torch.device("cpu")
READ_SECONDS = 0.005  # that the slowed loader takes longer for a batch
LINK_MEGABITS = 200
NARROW, WIDE = 512, 2048
TRACED_STEPS = 20
CONSIDERED = ("double batch", "twice the link", "bf16", "channels_last")


class LossCase(NamedTuple):
    """Steps that lose time, and the same without the loss."""

    workload: str
    clean: str
    """workload without the loss; the same where there is none to take away"""
    workers: int = 1
    batch: int = 32
    accumulation: int = 1
    megabits: float | None = None
    """rate of the links between two hosts; None for links as fast as memory"""


CASES = {
    "scalar": LossCase("with_scalar_sum", "plain_digits", workers=2),
    "scalar in micro-steps": LossCase("with_scalar_sum", "plain_digits", workers=2, accumulation=8),
    "loader": LossCase("with_slow_loader", "with_fast_loader", batch=64),
    "layer": LossCase("with_wide_layer", "with_narrow_layer", batch=128),
    "link": LossCase("wide_digits", "wide_digits", workers=2, batch=64, megabits=LINK_MEGABITS),
    "digits": LossCase("plain_digits", "plain_digits"),
    "digits, large batch": LossCase("plain_digits", "plain_digits", workers=2, batch=128),
    "text": LossCase("text", "text", batch=16),
    "text on two": LossCase("text", "text", workers=2, batch=8),
}


def plain_digits(config: TrainConfig) -> Workload:
    """Digits as they are."""
    return digits(config)


def wide_digits(config: TrainConfig) -> Workload:
    """Digits with 3.2 MB of gradients."""
    return wide(config)


def with_scalar_sum(config: TrainConfig) -> Workload:
    """Digits with a loss that is all-reduced and read in every step."""

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        value = F.cross_entropy(logits, labels)
        mean = value.detach().clone()
        dist.all_reduce(mean)
        mean.item()
        return value

    return replace(digits(config), loss=loss)


class SlowRows(Dataset[tuple[Tensor, Tensor]]):
    """Rows of a split that take a while to read."""

    def __init__(self, split: Split, seconds: float) -> None:
        self.rows, self.labels, self.seconds = split.inputs.flatten(1).float() / 255, split.targets, seconds

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if self.seconds:
            time.sleep(self.seconds)
        return self.rows[index], self.labels[index]


def build_rows(config: TrainConfig, seconds: float) -> Workload:
    images = digits(config)
    splits = {name: getattr(images, name) for name in ("train", "validation", "reference", "test")}
    return Workload(
        name="rows",
        model=lambda: nn.Sequential(nn.Linear(256, 4096), nn.ReLU(), nn.Linear(4096, 10)),
        target=None,
        loss=F.cross_entropy,
        metric=lambda scores, labels: (scores.argmax(1) == labels).double(),
        **{name: Split(SlowRows(split, seconds if name == "train" else 0.0)) for name, split in splits.items()},
    )


def with_slow_loader(config: TrainConfig) -> Workload:
    """Rows of digits, each batch 5 ms slower to read."""
    return build_rows(config, READ_SECONDS / config.batch_size)


def with_fast_loader(config: TrainConfig) -> Workload:
    """Rows of digits, as fast as they can be read."""
    return build_rows(config, 0.0)


def build_linear_layers(config: TrainConfig, width: int) -> Workload:
    def build() -> nn.Module:
        layers = (nn.Linear(256, NARROW), nn.ReLU(), nn.Linear(NARROW, width), nn.ReLU(), nn.Linear(width, 10))
        return nn.Sequential(nn.Flatten(), *layers)

    return replace(digits(config), model=build)


def with_wide_layer(config: TrainConfig) -> Workload:
    """Digits with three layers, the second four times as wide."""
    return build_linear_layers(config, WIDE)


def with_narrow_layer(config: TrainConfig) -> Workload:
    """Digits with three layers, the second as wide as the first."""
    return build_linear_layers(config, NARROW)


def profile_case(name: str) -> dict[str, Any]:
    """Profile a case in this process, and time it in turns with its steps without the loss."""
    case = CASES[name]
    configs = [
        TrainConfig(
            workload=workload if workload == "text" else f"benchmarks.profile_losses:{workload}",
            workers=case.workers,
            batch_size=case.batch,
            grad_accumulation=case.accumulation,
        )
        for workload in (case.workload, case.clean)
    ]
    workload = load_workload(configs[0])
    start = time.monotonic()
    result = profile_steps(configs[0], workload, CPU, TRACED_STEPS, CONSIDERED, nodes=case.workers)
    took = time.monotonic() - start
    report = try_proposals(add_advice(result.report), result.stepped, workload, CPU, min_gain=0.0)
    is_other = case.workload != case.clean
    gain = (
        measure_gain(result.stepped, SteppedTraining(configs[1], load_workload(configs[1]), CPU)) if is_other else None
    )
    return describe_case(result, report, took, gain)


def describe_case(result: ProfileResult, report: ProfileReport, took: float, gain: float | None) -> dict[str, Any]:
    """Return what a case showed."""
    return {
        "seconds": report.steps.seconds,
        "marks": report.steps.marked_seconds / report.steps.seconds,
        "traced": report.steps.traced_seconds / report.steps.seconds,
        "trace_bytes": len(result.trace),
        "took": took,
        "gain": gain,
        "narrow": predict_narrow_layer(report),
        "losses": [(loss.name, loss.seconds, loss.gain.value, loss.gain.low, loss.gain.high) for loss in report.losses],
        "proposals": [
            (row.name, row.gain.value, row.gain.low, row.gain.high, row.tried_gain) for row in report.proposals
        ],
        "parts": [vars(parts) for parts in report.steps.parts],
    }


def predict_narrow_layer(report: ProfileReport) -> float:
    """Return the predicted gain of a second layer with a quarter of its width."""
    seconds = sum(saved_by_layer(report, layer) for layer in report.layers if layer.name in ("3", "4", "5"))
    return saved_gain(report, 0.75 * seconds)


def run_case(name: str, megabits: float | None) -> dict[str, Any]:
    """Run a case on as many hosts as it has workers, with links of a rate, and return what it showed."""
    if CASES[name].workers == 1:
        command = [sys.executable, "-m", "benchmarks.profile_losses", "--here", name]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found: dict[str, Any] = json.loads(output.splitlines()[-1])
        return found
    with create_lan(CASES[name].workers, megabits) as hosts:
        (shown, *_) = run_on_hosts(hosts, "benchmarks.profile_losses:profile_case", name)
    return shown


def print_case(name: str, shown: dict[str, Any]) -> None:
    print(f"== {name}: a step takes {1000 * shown['seconds']:.2f} ms, profiled in {shown['took']:.0f} s; with marks")
    print(f"   {shown['marks']:.3f} times that, traced {shown['traced']:.2f}, {shown['trace_bytes'] / 1e6:.2f} MB")
    for row in shown["losses"][:5]:
        print(f"   {row[0]:<45} {1000 * row[1]:8.3f} ms  gain without it {row[2]:.2f} ({row[3]:.2f} to {row[4]:.2f})")
    if shown["gain"]:
        print(f"   measured without it: {shown['gain']:.3f}; a second layer of a quarter: {shown['narrow']:.3f}")
    for row in shown["proposals"]:
        tried = (
            "" if row[4] is None else f"  measured {row[4]:.2f} {'holds' if row[2] <= row[4] <= row[3] else 'MISSES'}"
        )
        print(f"   {row[0]:<45} {row[1]:.2f} ({row[2]:.2f} to {row[3]:.2f}){tried}")
    print(json.dumps(shown["parts"]), flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--here"]:
        torch.set_num_threads(1)
        print(json.dumps(profile_case(sys.argv[2])))
        return
    for name in sys.argv[1:] or CASES:
        megabits = CASES[name].megabits
        print_case(name, run_case(name, megabits))
        if name == "link" and megabits:
            for rate in (2 * megabits, None):
                print_case(f"link at {rate} Mbit/s", run_case(name, rate))


if __name__ == "__main__":
    main()
