"""How good the plans of text sweeps are, by sweeps replayed on a recorded grid: python -m benchmarks.text_plans.

For one target: how much longer the plan of a sweep takes than the best setting of the grid, both on seeds that the
sweep did not see, and in how many sweeps the interval of the critical batch holds that of the whole grid. For several:
whether the critical batches from the trials of one sweep agree with those of sweeps to each target alone.
"""

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from benchmarks.search_policies.recorded_curves import DATA_FOLDER, RecordedCurves
from benchmarks.search_policies.replay_budget import ReplayedSweep, SweepSettings
from equipoise.planning.document import PlanEntry
from equipoise.planning.examples_to_target import ExamplesCurve, fit_examples_curve

REPLAY_COUNT = 20
MAX_REGRET = 0.2  # wanted of plans

CriticalBatch = tuple[float, float, float]
"""value in examples, and its interval"""


def main() -> None:
    """Print the figures for each target alone, and for all of them."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.text_plans", description=__doc__)
    parser.add_argument("--budgets", type=float, nargs="+", default=[120.0])
    parser.add_argument("--targets", type=float, nargs="+", default=[2.4], help="the easiest first")
    parser.add_argument("--eval-every", type=int, nargs="+", default=[SweepSettings.eval_every])
    parser.add_argument("--replays", type=int, default=REPLAY_COUNT)
    options = parser.parse_args()
    for budget, eval_every in product(options.budgets, options.eval_every):
        settings = SweepSettings(targets=tuple(options.targets), budget_seconds=budget, eval_every=eval_every)
        print(f"\nbudget {budget:g} s, evaluated every {eval_every}")
        alone = {
            target: replay_sweeps(replace(settings, targets=(target,)), options.replays) for target in options.targets
        }
        if len(options.targets) > 1:
            together = replay_sweeps(settings, options.replays)
            for target in options.targets:
                print_agreement(
                    target, [outcome[target] for outcome in together], [one[target] for one in alone[target]]
                )


def replay_sweeps(settings: SweepSettings, replay_count: int) -> list[dict[float, CriticalBatch | None]]:
    """Replay sweeps and print their figures; return the critical batch of each target, if it is identifiable."""
    truth = RecordedCurves(DATA_FOLDER / "text", settings.targets[-1])
    outcomes, regrets, counts = [], [], []
    for draw in range(replay_count):
        seen, others = split_seeds(truth, draw)
        sweep = ReplayedSweep(truth, settings, seen, draw)
        sweep.run()
        counts.append((len(sweep.finished), sweep.finished.reached.sum()))
        plan, curves = None, {}
        if len(sweep.finished) > 1 and sweep.finished.reached.any():  # else the sweep asks for a larger budget
            curves = sweep.fit_targets()
            plan = sweep.build_plan(curves[settings.targets[-1]])
        regrets.append(measure_regret(truth, plan, settings.targets[-1], seen, others) if plan else np.inf)
        outcomes.append({target: find_critical_batch(curves.get(target)) for target in settings.targets})
    num_ended, num_reached = np.mean(counts, axis=0)
    print(
        f"sweeps to {', '.join(map(str, settings.targets))}: {num_ended:.1f} trials ended, {num_reached:.1f} at the"
        f" target; regret {np.median(regrets):+.1%} in the median, {max(regrets):+.1%} at most,"
        f" {np.mean(np.array(regrets) <= MAX_REGRET):.0%} within {MAX_REGRET:.0%}",
        flush=True,
    )
    for target in settings.targets:
        print_coverage(truth, target, [outcome[target] for outcome in outcomes])
    return outcomes


def find_critical_batch(curve: ExamplesCurve | None) -> CriticalBatch | None:
    """Return the critical batch of a curve with its interval; None if it is not identifiable."""
    return curve.critical_batch if curve and curve.identifiable else None


def print_coverage(truth: RecordedCurves, target: float, found: Sequence[CriticalBatch | None]) -> None:
    """Print in how many sweeps the interval of the critical batch of a target covers the one of the grid."""
    curve = fit_examples_curve(truth.build_runs(target))
    value, low, high = curve.critical_batch or (np.nan,) * 3
    known = [interval for interval in found if interval]
    covered = sum(low <= value <= high for _, low, high in known)
    print(
        f"  critical batch of {target}: grid {value:.0f} ({low:.0f} to {high:.0f}); identifiable in {len(known)} of"
        f" {len(found)} sweeps, {covered} of these intervals cover the grid's"
        + (f"; median {np.median([value for value, *_ in known]):.0f}, intervals span a factor of"
           f" {np.median([high / low for _, low, high in known]):.1f}" if known else "")
    )  # fmt: skip


def print_agreement(
    target: float, together: Sequence[CriticalBatch | None], alone: Sequence[CriticalBatch | None]
) -> None:
    """Print how well the critical batches of one target from two kinds of sweeps agree."""
    pairs = [(first, second) for first, second in zip(together, alone, strict=True) if first and second]
    overlap = sum(first[1] <= second[2] and second[1] <= first[2] for first, second in pairs)
    inside = sum(second[1] <= first[0] <= second[2] for first, second in pairs)
    ratios = [first[0] / second[0] for first, second in pairs]
    ratio = np.median(ratios) if pairs else np.nan
    print(
        f"  {target} from all targets against alone: both identifiable in {len(pairs)}, intervals overlap in"
        f" {overlap}, inside the other's interval in {inside}, ratio {ratio:.2f} in the median"
    )


def measure_regret(truth: RecordedCurves, plan: PlanEntry, target: float, seen: list[int], others: list[int]) -> float:
    """Return how much longer a plan takes than the best of the grid by the seen seeds, both on the others."""
    seconds = truth.expected_seconds(plan.workers, plan.global_batch, plan.lr or 0.0, target, others)
    return seconds / truth.expected_seconds(*truth.find_best(target, seen), target, others) - 1


def split_seeds(truth: RecordedCurves, draw: int) -> tuple[list[int], list[int]]:
    """Split the seeds at random into those that a sweep sees and those that judge its plan."""
    shuffled = np.random.default_rng(draw).permutation(truth.seeds).tolist()
    return shuffled[: len(shuffled) // 2], shuffled[len(shuffled) // 2 :]


if __name__ == "__main__":
    main()
