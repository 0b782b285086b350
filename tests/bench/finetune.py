"""What a model that has learned the source set saves on a machine's few pictures: python -m tests.bench.finetune.

Trains the source model once, then every start at several learning rates, and shows each at its best: accuracy on the
test split against examples seen, mean and 95 % interval over seeds.
"""

import json
import statistics
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import save_file
from scipy import stats

from equipoise.loop import Training
from equipoise.machine import machine
from equipoise.trial import Trial
from equipoise.workloads import Split, Workload, workload
from equipoise.workloads.products import MACHINE, SHARED

RATES = (0.01, 0.03, 0.1)
SHOWN = (60, 120, 300, 600, 1200, 2400, 4800, 9600)  # examples seen: a pass is 300
EARLY = SHOWN[:4]
STARTS = {
    "from scratch": {},
    "whole network tuned": {"init": "", "reuse": False},
    "the same, rows reused": {"init": "", "reuse": True},
    "bottom frozen, rows reused": {"init": "", "reuse": True, "freeze": 1},
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
    options.add_argument("--source-examples", type=int, default=100_000)
    options.add_argument("--source-lr", type=float, default=0.05)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--threads", type=int, default=2)
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    print(", ".join(f"{name} {value}" for name, value in machine(torch.device("cpu")).items()))
    with TemporaryDirectory() as folder:
        print(source(given.model, given.source_examples, given.source_lr, Path(folder)), flush=True)
        table(given.model, Path(folder), range(given.seeds))


def source(name: str, examples: int, lr: float, folder: Path) -> str:
    """Train on the source set and leave the model in `folder`; what came of it."""
    trial = Trial(
        workload="vending-source", model=name, lr=lr, examples=examples, target=2.0, evaluate=examples, probe=0
    )
    training = Training(replace(trial, schedule="cosine"))
    for _ in training.laps():
        pass
    weights = {key: value.contiguous() for key, value in training.model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", {"classes": json.dumps(list(training.workload.classes))})
    seconds = sum(lap.seconds for lap in training.done)
    accuracy = training.metric(training.workload.test)
    return f"\nsource: {name} on vending-source, {examples:,} examples, {seconds:.0f} s, test accuracy {accuracy:.3f}\n"


def table(name: str, folder: Path, seeds: range) -> None:
    """Each start at the rate that is best for it in the end, by the validation split of a seed that is not shown."""
    made = workload(Trial(workload="vending", model=name))
    found = {}
    for start, changes in STARTS.items():
        changes = changes | ({"init": str(folder)} if "init" in changes else {})
        trial = Trial(workload="vending", model=name, warmup=0.5, target=2.0, examples=SHOWN[-1], evaluate=60, probe=0)
        trial = replace(trial, **changes)
        best = max(RATES, key=lambda lr: settled(replace(trial, lr=lr, seed=100), made))
        found[f"{start} | {best:g}"] = [curve(replace(trial, lr=best, seed=seed), made) for seed in seeds]
    print_rows("all classes", SHOWN, {start: [one.every for one in curves] for start, curves in found.items()})
    print_rows("shared classes", EARLY, {start: [one.shared for one in curves] for start, curves in found.items()})


def print_rows(title: str, counts: tuple[int, ...], rows: dict[str, list[list[float]]]) -> None:
    """One table of accuracies."""
    print(f"\n| {title}: start | lr | {' | '.join(f'{count:,} seen' for count in counts)} |")
    print(f"|---|--:|{'--:|' * len(counts)}")
    for start, curves in rows.items():
        print(f"| {start} | {' | '.join(shown([one[i] for one in curves]) for i in range(len(counts)))} |")


def settled(trial: Trial, made: Workload) -> float:
    """Validation accuracy in the end, of a seed that the table does not show."""
    training = Training(trial, made)
    for _ in training.laps():
        pass
    return statistics.mean(lap.metric for lap in training.done[-5:] if lap.metric is not None)


def curve(trial: Trial, made: Workload) -> Curve:
    """Accuracy on the test split as examples are seen."""
    training = Training(trial, made)
    shared = [MACHINE.index(product) for product in SHARED]
    some = torch.isin(made.test.labels, torch.tensor(shared))
    assert isinstance(made.test.pictures, torch.Tensor)
    known = Split(made.test.pictures[some], made.test.labels[some])
    every, early = [], []
    for seen in marks(training):
        every.append(training.metric(made.test))
        early.append(training.metric(known))
        assert seen >= SHOWN[len(every) - 1]
    return Curve(every, early)


def marks(training: Training) -> Iterator[int]:
    """Train on, pausing after each number of examples in SHOWN."""
    left = list(SHOWN)
    for lap in training.laps():
        if left and lap.seen >= left[0]:
            left.pop(0)
            yield lap.seen


def shown(values: list[float]) -> str:
    """Mean and half the 95 % interval, in percent."""
    half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5 if values[1:] else 0.0
    return f"{statistics.mean(values):.1%} ± {half:.1%}"


if __name__ == "__main__":
    main()
