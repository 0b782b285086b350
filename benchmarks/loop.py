"""Speed of the training loop against its peers: python -m benchmarks.loop.

All train the same model on the same examples in memory. A ratio is taken within a round.
"""

import statistics
import sys
from argparse import ArgumentParser
from importlib.util import find_spec

import torch

from benchmarks.rounds import Contestant, Speeds, rounds
from benchmarks.training_case import Case, case, parser
from equipoise.hardware import describe_hardware

ON_CPU = {
    "ours": Contestant("equipoise_loop"),
    "ddp": Contestant("hand_written_loop"),
    "ddp-fused": Contestant("hand_written_loop", ("--fused",)),
    "dataloader": Contestant("textbook_loop"),
    "lightning": Contestant("with_lightning", needs="lightning"),
    "accelerate": Contestant("with_accelerate", needs="accelerate"),
}
GPU = ("--device", "cuda")
ON_GPU = {
    "eager": Contestant("hand_written_loop", GPU),
    "ours": Contestant("equipoise_loop", GPU),
    "ours-bf16": Contestant("equipoise_loop", (*GPU, "--precision", "bf16")),
    "ours-bf16-compiled": Contestant("equipoise_loop", (*GPU, "--precision", "bf16", "--channels-last", "--compile")),
}
GPU_WARMUP_STEPS, GPU_STEPS = 100, 1600  # a step takes milliseconds there


def main() -> None:
    """Measure what was asked for and print a table for each model and number of workers."""
    given = arguments().parse_args()
    models = [given.model] if given.model else ["lenet", "resnet18"]
    if given.cuda:
        if not torch.cuda.is_available():
            sys.exit("--cuda: torch finds no GPU here")
        models, given.workers = ["resnet18"], [1]
        given.warmup_steps, given.steps = given.warmup_steps or GPU_WARMUP_STEPS, given.steps or GPU_STEPS
    contestants = chosen(ON_GPU if given.cuda else ON_CPU, given.only)
    facts = describe_hardware(torch.device("cuda" if given.cuda else "cpu"))
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    for model in models:
        for workers in given.workers:
            asked = case(given, model)
            print(f"\n{title(asked, workers, given.rounds)}\n", flush=True)
            print(table(rounds(contestants, asked, workers, given.rounds), inverse=given.cuda), flush=True)


def arguments() -> ArgumentParser:
    """The arguments of a contestant, and which contestants."""
    options = parser(__doc__)
    options.set_defaults(model=None)
    options.add_argument("--workers", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--only", default="", help="contestants beside the first, with commas; all if not given")
    options.add_argument("--cuda", action="store_true", help="resnet18 in one process on a GPU, in several precisions")
    return options


def chosen(contestants: dict[str, Contestant], only: str) -> dict[str, Contestant]:
    """The first contestant, and of the others those asked for and installed."""
    first, *peers = contestants
    names = only.split(",") if only else peers
    if unknown := set(names) - set(peers):
        sys.exit(f"no contestant {', '.join(sorted(unknown))}; there are: {', '.join(peers)}")
    missing = [name for name in names if find_spec(contestants[name].needs) is None]
    for name in missing:
        print(f"{name} is left out: {contestants[name].needs} is not installed")
    return {name: contestants[name] for name in [first, *names] if name not in missing}


def title(asked: Case, workers: int, count: int) -> str:
    """What a table is about."""
    share = f"{workers} worker{'s' * (workers > 1)}, {asked.batch} examples a worker and step"
    return f"**{asked.model}, {share}**: {asked.steps} steps after {asked.warmup_steps}, medians of {count} rounds"


def table(speeds: Speeds, inverse: bool) -> str:
    """Medians, and the first contestant's speed over each one's; inverse: each one's over the first's."""
    first = next(iter(speeds))
    ratio = f"it / {first}" if inverse else f"{first} / it"
    lines = [f"| loop | examples/s | CPU µs/example | {ratio} | lowest | highest |", "|---|--:|--:|--:|--:|--:|"]
    paces = {name: [one["examples_per_second"] for one in own] for name, own in speeds.items()}
    for name, own in paces.items():
        over, under = (own, paces[first]) if inverse else (paces[first], own)
        ratios = [a / b for a, b in zip(over, under, strict=True)]
        cpu = statistics.median(one["cpu_seconds_per_example"] for one in speeds[name]) * 1e6
        shown = " | ".join(f"{ratio:.3f}" for ratio in (statistics.median(ratios), min(ratios), max(ratios)))
        lines.append(f"| {name} | {statistics.median(own):,.0f} | {cpu:.1f} | {shown} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
