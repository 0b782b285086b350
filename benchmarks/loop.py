"""Compare the speed of the training loop with that of its peers: python -m benchmarks.loop.

All train the same model on the same examples in memory. Ratios are taken within a round.
"""

import statistics
import sys
from argparse import ArgumentParser
from importlib.util import find_spec

import torch

from benchmarks.rounds import Contestant, Speeds, run_rounds
from benchmarks.training_case import TrainingCase, build_case, build_case_parser
from equipoise.hardware import describe_hardware

CPU_CONTESTANTS = {
    "ours": Contestant("equipoise_loop"),
    "ddp": Contestant("hand_written_loop"),
    "ddp-fused": Contestant("hand_written_loop", ("--fused",)),
    "dataloader": Contestant("textbook_loop"),
    "lightning": Contestant("with_lightning", needs="lightning"),
    "accelerate": Contestant("with_accelerate", needs="accelerate"),
}
GPU_FLAGS = ("--device", "cuda")
GPU_CONTESTANTS = {
    "eager": Contestant("hand_written_loop", GPU_FLAGS),
    "ours": Contestant("equipoise_loop", GPU_FLAGS),
    "ours-bf16": Contestant("equipoise_loop", (*GPU_FLAGS, "--precision", "bf16")),
    "ours-bf16-compiled": Contestant(
        "equipoise_loop", (*GPU_FLAGS, "--precision", "bf16", "--channels-last", "--compile")
    ),
}
GPU_WARMUP_STEPS, GPU_STEPS = 100, 1600  # a step takes milliseconds there


def main() -> None:
    """Measure the chosen contestants and print a table for each model and number of workers."""
    arguments = build_parser().parse_args()
    models = [arguments.model] if arguments.model else ["lenet", "resnet18"]
    if arguments.cuda:
        if not torch.cuda.is_available():
            sys.exit("cannot run --cuda: torch finds no GPU on this machine")
        models, arguments.workers = ["resnet18"], [1]
        arguments.warmup_steps, arguments.steps = (
            arguments.warmup_steps or GPU_WARMUP_STEPS,
            arguments.steps or GPU_STEPS,
        )
    contestants = select_contestants(GPU_CONTESTANTS if arguments.cuda else CPU_CONTESTANTS, arguments.only)
    print(describe_hardware(torch.device("cuda" if arguments.cuda else "cpu")))
    for model in models:
        for workers in arguments.workers:
            case = build_case(arguments, model)
            print(f"\n{format_title(case, workers, arguments.rounds)}\n", flush=True)
            print(
                format_speed_table(run_rounds(contestants, case, workers, arguments.rounds), inverse=arguments.cuda),
                flush=True,
            )


def build_parser() -> ArgumentParser:
    """Build the parser of the case, the contestants and the rounds."""
    parser = build_case_parser(__doc__)
    parser.set_defaults(model=None)
    parser.add_argument("--workers", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only", default="", help="contestants to run beside the first, separated by commas; all by default"
    )
    parser.add_argument(
        "--cuda", action="store_true", help="train resnet18 in one process on a GPU, in several precisions"
    )
    return parser


def select_contestants(contestants: dict[str, Contestant], only: str) -> dict[str, Contestant]:
    """Return the first contestant and those of the others that are selected and installed."""
    first, *peers = contestants
    names = only.split(",") if only else peers
    if unknown := set(names) - set(peers):
        sys.exit(f"unknown contestant {', '.join(sorted(unknown))}; choose from {', '.join(peers)}")
    missing = [name for name in names if find_spec(contestants[name].needs) is None]
    for name in missing:
        print(f"skipping {name}: {contestants[name].needs} is not installed")
    return {name: contestants[name] for name in [first, *names] if name not in missing}


def format_title(case: TrainingCase, workers: int, count: int) -> str:
    """Format the title of a table: model, workers, batch and steps."""
    share = f"{workers} worker{'s' * (workers > 1)}, {case.batch} examples per worker and step"
    return f"**{case.model}, {share}**: {case.steps} steps after {case.warmup_steps}, medians of {count} rounds"


def format_speed_table(speeds: Speeds, inverse: bool) -> str:
    """Format median speeds and the ratio of the first contestant's to each one's; `inverse` turns the ratio over."""
    first = next(iter(speeds))
    ratio = f"it / {first}" if inverse else f"{first} / it"
    lines = [f"| loop | examples/s | CPU µs/example | {ratio} | lowest | highest |", "|---|--:|--:|--:|--:|--:|"]
    rates_by_name = {name: [result["examples_per_second"] for result in results] for name, results in speeds.items()}
    for name, rates in rates_by_name.items():
        over, under = (rates, rates_by_name[first]) if inverse else (rates_by_name[first], rates)
        ratios = [a / b for a, b in zip(over, under, strict=True)]
        cpu = statistics.median(result["cpu_seconds_per_example"] for result in speeds[name]) * 1e6
        cells = " | ".join(f"{ratio:.3f}" for ratio in (statistics.median(ratios), min(ratios), max(ratios)))
        lines.append(f"| {name} | {statistics.median(rates):,.0f} | {cpu:.1f} | {cells} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
