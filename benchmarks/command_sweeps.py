"""Sweeps of a program whose curves are known: how close plans and critical batches come to the truth.

    python -m benchmarks.command_sweeps --sweeps 10

Each sweep draws other noise. The overhead is what a sweep printed: the time of its trials beyond that of the programs.
"""

import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.support import known_curve_program as program

COMMAND = f"{sys.executable} {program.__file__} --batch-size {{batch_size}} --lr {{lr}} --seed {{seed}}"
SEEDS_PER_SWEEP = 2000  # more than a sweep and its confirmation use
OVERHEAD_WORDS = re.compile(r"they took (-?\d+)% longer")


class SweepResult(NamedTuple):
    """Result of one sweep beside the truth."""

    batch: int
    regret: float
    """time to the target with the plan, over the shortest, less 1; the noise between seeds left out"""
    critical_batch: float
    is_confirmed: bool
    overhead: float
    trials: int


def true_seconds(batch: int, lr: float) -> float:
    """Return the seconds to the target without noise."""
    return program.mean_examples_to_target(batch, lr) / batch * program.step_seconds(batch)


def best_seconds() -> float:
    """Return the shortest time to the target at any batch, at its best learning rate."""
    return min(true_seconds(batch, program.best_lr(batch)) for batch in range(1, 513))


def run_sweep(seed: int, budget_seconds: float, folder: Path) -> SweepResult:
    """Run one sweep and compare its plan with the truth."""
    options = ["--workers", 1, "--target", 1, "--budget-seconds", budget_seconds, "--seed", seed, "--out", folder]
    arguments = [sys.executable, "-m", "jobs.sweep", "--command", COMMAND, *map(str, options)]
    output = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if not (folder / "plan.json").exists():
        raise SystemExit(output.stdout + output.stderr)
    document = json.loads((folder / "plan.json").read_text())
    plan, critical_batch = document["plan"], document["statistical"]["critical_batch"]
    overhead = OVERHEAD_WORDS.search(output.stdout)
    return SweepResult(
        batch=plan["global_batch"],
        regret=true_seconds(plan["global_batch"], plan["lr"]) / best_seconds() - 1,
        critical_batch=critical_batch["value"] if critical_batch else math.nan,
        is_confirmed=document["status"] == "confirmed",
        overhead=int(overhead[1]) / 100 if overhead else math.nan,
        trials=len(list((folder / "trials").glob("*.json"))),
    )


def main() -> None:
    """Run sweeps one after the other and print how each compares with the truth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=10)
    parser.add_argument("--budget-seconds", type=float, default=60)
    options = parser.parse_args()
    print("sweep  batch  regret  critical batch  confirmed  overhead  trials")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for index in range(options.sweeps):
            result = run_sweep(index * SEEDS_PER_SWEEP, options.budget_seconds, Path(folder, str(index)))
            results.append(result)
            print(
                f"{index:5}  {result.batch:5}  {result.regret:6.1%}  {result.critical_batch:14.1f}  "
                f"{'yes' if result.is_confirmed else 'no':9}  {result.overhead:8.0%}  {result.trials:6}",
                flush=True,
            )
    true_best = min(range(1, 513), key=lambda batch: true_seconds(batch, program.best_lr(batch)))
    good = [
        abs(math.log2(result.batch / true_best)) <= 1
        and result.regret <= 0.1
        and abs(result.critical_batch / program.CRITICAL_BATCH - 1) <= 0.25
        for result in results
    ]
    print(f"the best batch is {true_best}, the critical one {program.CRITICAL_BATCH}")
    print(f"{sum(good)} of {len(good)} within an octave, a regret of 10 % and 25 % of the critical batch")
    print(f"median overhead {statistics.median(result.overhead for result in results):.0%}")


if __name__ == "__main__":
    main()
