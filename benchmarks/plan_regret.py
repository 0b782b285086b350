"""Regret of plans from trials at three global batches only: the smallest, the middle and the largest.

    python -m benchmarks.plan_regret [folder of recorded sweeps ...]

Each folder holds system.csv with step times at all batches (a column `draw` numbers repeated measurements, if there are
any) and statistical.csv with runs of several seeds. Without folders it takes those of tests/data, and of
../shared/replay where that exists.

Half of the seeds make the plan, the others judge it: regret is how much longer it takes than the best setting of the
whole grid, in the median over random halves. Plans from the batches of the trials alone stand beside those from all
candidates.
"""

import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from equipoise.planning.examples_to_target import ExamplesCurve, fit_examples_curve
from equipoise.planning.measurements import read_examples_to_target
from equipoise.planning.plan import (
    ClusterShape,
    PlanOption,
    enumerate_options,
    list_candidate_batches,
    put_measured_first,
    rank_options,
)
from equipoise.planning.setting_runs import SettingRuns, expected_examples
from equipoise.planning.step_time_fit import StepTimeFit, fit_step_time

ROOT = Path(__file__).parents[1]
GRID_FOLDERS = (ROOT / "tests" / "data", ROOT.parent / "shared" / "replay")
DRAWS = 20
MIN_SEEDS = 4

CandidateFunction = Callable[[StepTimeFit, ExamplesCurve], Iterable[int]]


class GridSetting(NamedTuple):
    """Setting of a grid, or one between its batches."""

    shape: ClusterShape
    global_batch: int
    lr: float


class RecordedGrid:
    """Recorded grid of both curves."""

    def __init__(self, folder: Path) -> None:
        self.steps = pd.read_csv(folder / "system.csv")
        self.runs = read_examples_to_target(folder / "statistical.csv").astype({"global_batch": int})
        self.batches = sorted(self.runs.global_batch.unique().tolist())
        self.step_seconds = self.steps.groupby(["nodes", "workers", "batch"]).seconds.median()

    @property
    def trial_batches(self) -> list[int]:
        """Smallest, middle and largest global batch."""
        return [self.batches[0], self.batches[len(self.batches) // 2], self.batches[-1]]

    def draw_steps(self, draw: int) -> pd.DataFrame:
        """Return one of the repeated measurements of all step times, where there are several."""
        if "draw" not in self.steps:
            return self.steps
        draws = self.steps["draw"].unique()
        return self.steps[self.steps["draw"] == draws[draw % len(draws)]].drop(columns="draw")

    def split_runs(self, draw: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the runs of a random half of the seeds, and the others."""
        seeds = np.random.default_rng(draw).permutation(self.runs.seed.unique())
        is_first = self.runs.seed.isin(seeds[: len(seeds) // 2])
        return self.runs[is_first], self.runs[~is_first]

    def list_settings(self) -> list[GridSetting]:
        """List all settings of the grid."""
        settings = self.runs[["global_batch", "lr"]].drop_duplicates().fillna(0.0)
        return [
            GridSetting(ClusterShape(int(nodes), int(workers)), int(batch), lr)
            for nodes, workers, worker_batch in self.step_seconds.index
            for batch, lr in settings.itertuples(index=False)
            if workers * worker_batch == batch
        ]

    def seconds_to_target(self, setting: GridSetting, runs: pd.DataFrame) -> float:
        """Return the seconds to the target by measured steps and runs, interpolated in logs between batches."""
        low = max(batch for batch in self.batches if batch <= setting.global_batch)
        high = min(batch for batch in self.batches if batch >= setting.global_batch)
        mean_examples = examples = self.count_examples(low, setting, runs)
        if high > low:
            weight = np.log(setting.global_batch / low) / np.log(high / low)
            mean_examples = examples ** (1 - weight) * self.count_examples(high, setting, runs) ** weight
        times = self.step_seconds[setting.shape]
        batch = setting.global_batch / setting.shape.workers
        step_seconds = np.exp(np.interp(np.log(batch), np.log(times.index.to_numpy(float)), np.log(times.to_numpy())))
        return float(mean_examples / setting.global_batch * step_seconds)

    def count_examples(self, batch: int, setting: GridSetting, runs: pd.DataFrame) -> float:
        """Return the examples to the target at a batch of the grid, with the nearest learning rate to the setting's.

        From the setting's batch to this one, the learning rate changes with the square root.
        """
        of_batch = runs[runs.global_batch == batch].fillna({"lr": 0.0})
        if of_batch.empty:
            return float("inf")
        lr = setting.lr * np.sqrt(batch / setting.global_batch)
        nearest = min(of_batch.lr.unique(), key=lambda other: abs(np.log(other / lr)) if lr else 0.0)
        return expected_examples(SettingRuns.from_table(of_batch[of_batch.lr == nearest]))


def measure_regret(grid: RecordedGrid, draw: int, list_candidates: CandidateFunction) -> float:
    """Plan with half of the seeds at three batches, and return the regret by the others; NaN without a plan."""
    planning_runs, judging_runs = grid.split_runs(draw)
    steps = grid.draw_steps(draw)
    step_fit = fit_step_time(steps)
    curve = fit_examples_curve(planning_runs[planning_runs.global_batch.isin(grid.trial_batches)])
    shapes = steps[["nodes", "workers"]].drop_duplicates().astype(int).itertuples(index=False)
    options = enumerate_options(
        step_fit, curve, [ClusterShape(*shape) for shape in shapes], list_candidates(step_fit, curve)
    )
    ranked = put_measured_first(rank_options(options))
    if not ranked:
        return float("nan")
    best = min(grid.list_settings(), key=lambda setting: grid.seconds_to_target(setting, planning_runs))
    planned = grid.seconds_to_target(to_setting(ranked[0]), judging_runs)
    return planned / grid.seconds_to_target(best, judging_runs) - 1


def to_setting(option: PlanOption) -> GridSetting:
    """Return the setting of an option."""
    return GridSetting(ClusterShape(option.nodes, option.workers), option.global_batch, option.lr or 0.0)


def list_trial_batches(_: StepTimeFit, curve: ExamplesCurve) -> list[int]:
    """Return the global batches of the trials alone."""
    return [int(batch) for batch in curve.batch_summary.index]


def main() -> int:
    """Print the regret on each grid, and the median over the grids."""
    warnings.simplefilter("ignore")
    folders = [Path(text) for text in sys.argv[1:]] or [
        folder for root in GRID_FOLDERS if root.is_dir() for folder in sorted(root.iterdir())
    ]
    medians = []
    print("| grid | trials at | trial batches only | all candidates |\n|---|---|--:|--:|")
    for folder in folders:
        if not (folder / "statistical.csv").exists() or not (folder / "system.csv").exists():
            continue
        grid = RecordedGrid(folder)
        if grid.runs.seed.nunique() < MIN_SEEDS:
            continue
        regrets = [
            np.nanmedian([measure_regret(grid, draw, candidates) for draw in range(DRAWS)])
            for candidates in (list_trial_batches, list_candidate_batches)
        ]
        medians.append(regrets)
        texts = " | ".join(f"{regret:.1%}" for regret in regrets)
        print(f"| {folder.name} | {', '.join(map(str, grid.trial_batches))} | {texts} |", flush=True)
    if not medians:
        print(f"no folder holds system.csv and statistical.csv with {MIN_SEEDS} seeds or more", file=sys.stderr)
        return 2
    print(f"| median | | {' | '.join(f'{regret:.1%}' for regret in np.median(medians, axis=0))} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
