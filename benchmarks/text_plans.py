"""How good the plans of text sweeps are, by sweeps replayed on a recorded grid: python -m benchmarks.text_plans.

For one target: how much longer the plan of a sweep takes than the best setting of the grid, both on seeds that the
sweep did not see, and in how many sweeps the interval of the critical batch holds that of the whole grid. For several:
whether the critical batches from the trials of one sweep agree with those of sweeps to each target alone.
"""

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.search_policies.recorded_curves import DATA_FOLDER, RecordedCurves
from benchmarks.search_policies.replay_budget import ReplayedSweep, SweepSettings
from equipoise.planning.document import PlanDocument, PlanEntry
from equipoise.planning.examples_to_target import fit_examples_curve
from equipoise.planning.interval import IntervalEstimate

REPLAY_COUNT = 20
TARGETS = (2.4, 2.2, 2.0)


def main() -> None:
    """Print the figures for one target and for several."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.text_plans", description=__doc__)
    parser.add_argument("--budgets", type=float, nargs="+", default=[120.0])
    parser.add_argument("--targets", type=float, nargs="+", default=list(TARGETS))
    parser.add_argument("--eval-every", type=int, nargs="+", default=[SweepSettings.eval_every])
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    for budget in options.budgets:
        for eval_every in options.eval_every:
            settings = SweepSettings(targets=(options.targets[0],), budget_seconds=budget, eval_every=eval_every)
            for target in options.targets:
                print_figures(replace(settings, targets=(target,)), options.verbose)
            if len(options.targets) > 1:
                print_figures(replace(settings, targets=tuple(options.targets)), options.verbose)


def print_figures(settings: SweepSettings, verbose: bool) -> None:
    """Print the figures of sweeps with these settings."""
    truth = RecordedCurves(DATA_FOLDER / "text", settings.targets[-1])
    print(f"\n{settings.targets} in {settings.budget_seconds:g} s, evaluated every {settings.eval_every}")
    regrets, documents, counts = [], [], []
    for draw in range(REPLAY_COUNT):
        seen, others = split_seeds(truth, draw)
        sweep = ReplayedSweep(truth, settings, seen, draw)
        sweep.run()
        reached = sum(record.reached for record in sweep.records)
        counts.append((len(sweep.records), reached))
        document = sweep.build_plan() if reached and len(sweep.finished) > 1 else None
        if document is None or document.plan is None:
            regrets.append(np.inf)
            continue
        documents.append(document)
        regrets.append(measure_regret(truth, document.plan, settings.targets[-1], seen, others))
        if verbose:
            print(describe_replay(document, regrets[-1], counts[-1]))
    print(f"  trials {np.mean(counts, axis=0)} (all, to the target)")
    print(f"  regret: {' '.join(f'{regret:+.0%}' for regret in sorted(regrets))}; median {np.median(regrets):+.1%},"
          f" {np.mean(np.array(regrets) <= 0.2):.0%} within 20 %")  # fmt: skip
    for target in settings.targets:
        print_coverage(truth, target, documents)


def print_coverage(truth: RecordedCurves, target: float, documents: Sequence[PlanDocument]) -> None:
    """Print in how many sweeps the interval of the critical batch of a target covers the one of the grid."""
    curve = fit_examples_curve(truth.build_runs(target))
    value, low, high = curve.critical_batch or (np.nan,) * 3
    found = [interval for document in documents if (interval := find_critical_batch(document, target))]
    covered = [interval.low <= value <= interval.high for interval in found]
    print(
        f"  critical batch of {target}: grid {value:.0f} ({low:.0f} to {high:.0f}); sweeps"
        f" {np.median([interval.value for interval in found] or [np.nan]):.0f} in the median,"
        f" {sum(covered)} of {len(found)} intervals cover it;"
        f" width {np.median([interval.high / interval.low for interval in found] or [np.nan]):.1f}"
    )


def find_critical_batch(document: PlanDocument, target: float) -> IntervalEstimate | None:
    """Return the critical batch of a target; None if it is not identifiable."""
    if document.targets:
        return next(plan.critical_batch for plan in document.targets if plan.target == target)
    return document.statistical.critical_batch if document.statistical else None


def measure_regret(truth: RecordedCurves, plan: PlanEntry, target: float, seen: list[int], others: list[int]) -> float:
    """Return how much longer a plan takes than the best of the grid by the seen seeds, both on the others."""
    seconds = truth.expected_seconds(plan.workers, plan.global_batch, plan.lr or 0.0, target, others)
    return seconds / truth.expected_seconds(*truth.find_best(target, seen), target, others) - 1


def split_seeds(truth: RecordedCurves, draw: int) -> tuple[list[int], list[int]]:
    """Split the seeds at random into those that a sweep sees and those that judge its plan."""
    shuffled = np.random.default_rng(draw).permutation(truth.seeds).tolist()
    return shuffled[: len(shuffled) // 2], shuffled[len(shuffled) // 2 :]


def describe_replay(document: PlanDocument, regret: float, counts: tuple[int, int]) -> str:
    """Describe the plan of one sweep in a line."""
    plan = document.plan
    critical = document.statistical.critical_batch if document.statistical else None
    setting = f"{plan.workers} x {plan.batch} lr {plan.lr:.3g}" if plan else "none"
    interval = f"{critical.value:.0f} ({critical.low:.0f}-{critical.high:.0f})" if critical else "none"
    return f"    {setting}, regret {regret:+.0%}, B_c {interval}, {counts[0]} trials, {counts[1]} to the target"


if __name__ == "__main__":
    main()
