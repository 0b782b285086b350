"""Turn two tables of measurements, yours or anyone's, into a plan, and ask it about a larger cluster.

    python examples/plan_from_csv.py tests/data/digits/system.csv tests/data/digits/statistical.csv --workers 4

The first table has nodes, workers, batch and seconds of an optimizer step; the second one global_batch, lr, seed,
examples to the target, and whether it was reached. `equipoise plan` does the same and writes plan.json with pages.
"""

import argparse
from pathlib import Path

from equipoise import (
    ClusterShape,
    PlanDocument,
    PlanRequest,
    build_plan_document,
    read_examples_to_target,
    read_step_times,
)


def build_plan(system: Path, statistical: Path, workers: int) -> PlanDocument:
    """Fit both tables, and plan for the measured numbers of workers and for `workers` on one node."""
    request = PlanRequest(
        system=read_step_times(system),
        statistical=read_examples_to_target(statistical),
        cluster_shapes=(ClusterShape(nodes=1, workers=workers),),
    )
    return build_plan_document(request)


def print_plan(document: PlanDocument) -> None:
    """Print the recommended plan, what each further second costs, and what the tables leave open."""
    if plan := document.plan:
        print(f"plan: {plan.workers} workers x batch {plan.batch} at lr {plan.lr:.3g}")
        print(f"  {plan.seconds.value:.2f} s, 80 % interval {plan.seconds.low:.2f} to {plan.seconds.high:.2f} s")
        print(f"  {plan.why}")
    print("time against cost, the fastest first:")
    for setting in document.front:
        origin = "measured" if setting.measured else "predicted"
        shape = f"{setting.workers} x {setting.batch}"
        print(f"  {shape:>8}  {setting.seconds.value:6.2f} s  {setting.worker_seconds:6.2f} worker-seconds  {origin}")
    for warning in document.warnings:
        print(f"note: {warning}")


def main() -> None:
    """Read the tables named on the command line and print the plan."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", type=Path, help="CSV of step times")
    parser.add_argument("statistical", type=Path, help="CSV of examples to the target")
    parser.add_argument("--workers", type=int, default=4, help="number of workers to predict, measured or not")
    arguments = parser.parse_args()
    print_plan(build_plan(arguments.system, arguments.statistical, arguments.workers))


if __name__ == "__main__":
    main()
