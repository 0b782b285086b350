"""Whether sweeps keep their budget, and whether runs confirm their plans.

python -m benchmarks.sweep_budget --out FOLDER [--cases digits patches] [--budgets 30 90 180] [--seeds 0]

Each sweep is the command itself with a Ray of its own. Where it ends without a plan, the budget that its last sentence
names is tried too. Nothing else should run meanwhile: step times are part of what is predicted. Finished sweeps in
FOLDER are not repeated, and are part of the summary.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from equipoise.planning.document import PLAN_FILE, PlanDocument
from tests.support.photographs import save_photographs

ROOT = Path(__file__).parents[1]
PHOTOGRAPHS_PER_CLASS = 400
OPTIONS_BY_CASE = {
    "digits": ["--workload", "digits"],
    "patches": ["--workload", "tests.support.patch_data:load_photo_patches", "--target", "0.6"],
    "photos-lenet": ["--workload", "folder", "--model", "lenet", "--image-size", "32"],
    "photos-resnet18": ["--workload", "folder"],
}
BUDGET = re.compile(r"give --budget-seconds (\d+)")
MAX_STARTUP_SECONDS = 30
MAX_OVERRUN_FACTOR = 1.1


@dataclass(frozen=True, kw_only=True)
class SweepOutcome:
    """How one sweep ended."""

    case: str
    budget_seconds: int
    seed: int
    is_retry: bool
    status: int
    measured_after_seconds: float
    """seconds from the start of the command to the end of timing and trials"""
    last_line: str
    plan_status: str | None = None
    runs: list[dict[str, object]] = field(default_factory=list)
    """confirmation runs in their order: status, seconds, interval, whether inside"""

    @property
    def keeps_budget(self) -> bool:
        """Return whether timing and trials ended in time."""
        return self.measured_after_seconds <= MAX_OVERRUN_FACTOR * self.budget_seconds + MAX_STARTUP_SECONDS

    @property
    def named_budget(self) -> int | None:
        """Return the budget that the last sentence names, or None."""
        match = BUDGET.search(self.last_line)
        return int(match[1]) if match else None


def main() -> int:
    """Run the sweeps and print a line for each, then a summary."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep_budget", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cases", nargs="+", default=list(OPTIONS_BY_CASE))
    parser.add_argument("--budgets", nargs="+", type=int, default=[30, 90, 180])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    options = parser.parse_args()
    photographs = options.out.absolute() / "photographs"
    if not photographs.exists():
        save_photographs(photographs, PHOTOGRAPHS_PER_CLASS)
    for seed in options.seeds:
        for case in options.cases:
            for budget in options.budgets:
                for outcome in run_with_retry(case, budget, seed, options.out.absolute(), photographs):
                    print(describe_outcome(outcome), flush=True)
    print_summary(load_outcomes(options.out))
    return 0


def run_with_retry(case: str, budget: int, seed: int, out: Path, photographs: Path) -> Iterator[SweepOutcome]:
    """Run a sweep and, where it ends with the name of a larger budget, the same command with that budget."""
    outcome = run_sweep(case, budget, seed, out, photographs)
    yield outcome
    if outcome.named_budget:
        yield run_sweep(case, budget, seed, out, photographs, retry_budget=outcome.named_budget)


def run_sweep(
    case: str, budget: int, seed: int, out: Path, photographs: Path, retry_budget: int | None = None
) -> SweepOutcome:
    """Run one sweep to its end and keep its outcome in a file."""
    folder = out / f"{case}-{budget}s-seed-{seed}"
    result_file = out / f"{folder.name}{'-retry' if retry_budget else ''}.json"
    if result_file.exists():
        return SweepOutcome(**json.loads(result_file.read_text()))
    data = ["--data", str(photographs)] if case.startswith("photos") else []
    command = [sys.executable, "-m", "jobs.sweep", *OPTIONS_BY_CASE[case], *data, "--workers", "1", "2"]
    command += ["--seed", str(seed), "--budget-seconds", str(retry_budget or budget), "--out", str(folder)]
    start, measured_at, lines = time.monotonic(), None, []
    with tempfile.TemporaryDirectory(prefix="eq-", ignore_cleanup_errors=True) as ray_folder:
        environment = os.environ | {"RAY_TMPDIR": ray_folder, "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout
            for line in process.stdout:
                lines.append(f"{time.monotonic() - start:7.1f} {line.rstrip()}")
                if measured_at is None and re.match(r"\d+ trials, ", line):
                    measured_at = time.monotonic()
    (out / f"{result_file.stem}.log").write_text("\n".join(lines) + "\n")
    plan_file = folder / PLAN_FILE
    document = PlanDocument.read(plan_file) if process.returncode in (0, 1) and plan_file.exists() else None
    outcome = SweepOutcome(
        case=case,
        budget_seconds=retry_budget or budget,
        seed=seed,
        is_retry=retry_budget is not None,
        status=process.returncode,
        measured_after_seconds=(measured_at or time.monotonic()) - start,
        last_line=lines[-1][8:] if lines else "",
        plan_status=document.status if document and document.plan else None,
        runs=[
            {
                "status": run.status,
                "seconds": run.seconds,
                "low": run.predicted.low,
                "predicted": run.predicted.value,
                "high": run.predicted.high,
                "inside": run.inside,
            }
            for run in (document.confirmations if document else ())
        ],
    )
    result_file.write_text(json.dumps(asdict(outcome)))
    return outcome


def load_outcomes(out: Path) -> list[SweepOutcome]:
    """Load the outcomes of all sweeps of a folder."""
    return [SweepOutcome(**json.loads(path.read_text())) for path in sorted(out.glob("*.json"))]


def describe_outcome(outcome: SweepOutcome) -> str:
    """Describe in one line how a sweep ended."""
    runs = "; ".join(
        f"{run['status']}: {run['seconds'] or float('nan'):.2f} s in {run['low']:.2f}-{run['high']:.2f}"
        for run in outcome.runs
    )
    return (
        f"{outcome.case} {outcome.budget_seconds} s seed {outcome.seed}{' (retry)' if outcome.is_retry else ''}:"
        f" measured after {outcome.measured_after_seconds:.0f} s"
        f" ({'within' if outcome.keeps_budget else 'OVER'} the budget), status {outcome.status},"
        f" {outcome.plan_status or outcome.last_line}; {runs}"
    )


def print_summary(outcomes: list[SweepOutcome]) -> None:
    """Print in how many sweeps the budget held, and how many runs confirmed their plans."""
    runs = [run for outcome in outcomes for run in outcome.runs]
    refuted = [(outcome.runs, index) for outcome in outcomes for index, run in enumerate(outcome.runs)
               if run["status"] == "refuted"]  # fmt: skip
    followed = [runs[index + 1] for runs, index in refuted if index + 1 < len(runs)]
    print(f"budget kept in {sum(outcome.keeps_budget for outcome in outcomes)} of {len(outcomes)} sweeps")
    print(f"plans in {sum(outcome.plan_status is not None for outcome in outcomes)} of {len(outcomes)} sweeps")
    print(f"{sum(bool(run['inside']) for run in runs)} of {len(runs)} runs inside their interval")
    confirmed = sum(run["status"] == "confirmed" for run in followed)
    print(f"after a refuted plan the next one was confirmed in {confirmed} of {len(followed)} cases")


if __name__ == "__main__":
    sys.exit(main())
