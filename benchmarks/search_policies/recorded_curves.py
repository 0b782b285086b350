"""Ground truth with whole curves: the metric of each recorded trial over the examples that it has seen.

A folder holds curves.csv: a row for each trial with the target that it was recorded up to, its noise scale and its
metric at the first step that ends at a mark of examples or after it, empty after its end; and system.csv, step times
measured several times over. From a curve follow the crossings of any target down to its own, and what evaluations any
number of examples apart would have shown. A lower metric is taken for a better one.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from equipoise.planning.setting_runs import SettingRuns, expected_examples
from equipoise.planning.step_time_fit import StepTimeFit, fit_step_time
from equipoise.type_aliases import FloatArray

DATA_FOLDER = Path(__file__).parents[2] / "tests" / "data"
FIRST_COLUMNS = ["global_batch", "lr", "seed", "target", "noise_scale"]


class Curve(NamedTuple):
    """Metric of one trial over the examples seen."""

    log_examples: FloatArray
    """natural log of the examples of each evaluation"""
    metrics: FloatArray
    noise_scale: float
    slope_at_end: float = 0.0
    """change of the metric by the log of the examples beyond the last evaluation"""

    def metric_at(self, examples: float) -> float:
        """Return the metric after some examples, interpolated over their log; the first one before the evaluations."""
        log_examples = np.log(examples)
        beyond = max(0.0, log_examples - self.log_examples[-1])
        return float(np.interp(log_examples, self.log_examples, self.metrics) + self.slope_at_end * beyond)

    def find_crossing(self, target: float) -> tuple[float, bool]:
        """Return the examples at which the metric first falls to a target; else those recorded, and False."""
        below = np.flatnonzero(self.metrics <= target)
        if not len(below):
            return float(np.exp(self.log_examples[-1])), False
        index = below[0]
        if not index:
            return float(np.exp(self.log_examples[0])), True
        before, after = self.metrics[index - 1], self.metrics[index]
        share = (before - target) / (before - after)
        low, high = self.log_examples[index - 1 : index + 1]
        return float(np.exp(low + share * (high - low))), True


class RecordedCurves:
    """Recorded trials of one workload up to a target: not all settings have all seeds."""

    def __init__(self, folder: Path, target: float) -> None:
        self.target = target
        self.steps = pd.read_csv(folder / "system.csv")
        self.step_fits: dict[int, StepTimeFit] = {}
        self.step_seconds = self.steps.groupby(["workers", "batch"]).seconds.median()
        table = pd.read_csv(folder / "curves.csv")
        table = table[table.target <= target]
        marks = [int(name) for name in table.columns[len(FIRST_COLUMNS) :]]
        self.curves: dict[tuple[int, float], dict[int, Curve]] = {}
        for batch, lr, seed, end, noise_scale, *metrics in table.itertuples(index=False, name=None):
            values = np.array(metrics, float)
            known = np.isfinite(values)
            seen = np.array([round_up(mark, batch) for mark in marks], float)
            curve = build_curve(np.log(seen[known]), values[known], noise_scale, end)
            self.curves.setdefault((batch, lr), {})[int(seed)] = curve
        self.batches = sorted({batch for batch, _ in self.curves})
        self.seeds = sorted({seed for curves in self.curves.values() for seed in curves})

    def list_lrs(self, batch: int) -> list[float]:
        """Return the recorded learning rates of a global batch."""
        return sorted(lr for other, lr in self.curves if other == batch)

    def choose_curves(self, batch: int, lr: float, seeds: list[int]) -> list[Curve]:
        """Return the curves of a setting for the seeds that it has of some; all its curves if it has none of them."""
        curves = self.curves[batch, lr]
        return [curves[seed] for seed in seeds if seed in curves] or list(curves.values())

    def build_runs(self, target: float, seeds: list[int] | None = None) -> pd.DataFrame:
        """Return the examples to a target of all trials, or those of some seeds, as a table of runs."""
        rows = [
            (batch, lr, seed, *curve.find_crossing(target))
            for (batch, lr), curves in self.curves.items()
            for seed, curve in curves.items()
            if seeds is None or seed in seeds
        ]
        return pd.DataFrame(rows, columns=[*FIRST_COLUMNS[:3], "examples", "reached"]).astype({"reached": int})

    def expected_seconds(self, workers: int, batch: int, lr: float, target: float, seeds: list[int]) -> float:
        """Return the mean seconds to a target by measured steps, failed runs followed by further ones.

        A setting that was not recorded lies between the nearest recorded batches, in logs, with the nearest of their
        learning rates to its own as the square root of the batch changes it.
        """
        low = max(other for other in self.batches if other <= batch)
        high = min(other for other in self.batches if other >= batch)
        weight = np.log(batch / low) / np.log(high / low) if high > low else 0.0
        ends = [self._expected_examples(end, lr * np.sqrt(end / batch), target, seeds) for end in (low, high)]
        examples = float(ends[0] ** (1 - weight) * ends[1] ** weight)
        return examples / batch * self.interpolate_step_seconds(workers, batch / workers)

    def _expected_examples(self, batch: int, lr: float, target: float, seeds: list[int]) -> float:
        nearest = min(self.list_lrs(batch), key=lambda other: abs(np.log(other / lr)))
        crossings = [curve.find_crossing(target) for curve in self.choose_curves(batch, nearest, seeds)]
        examples, reached = zip(*crossings, strict=True)
        return expected_examples(SettingRuns(np.array(examples), np.array(reached)))

    def interpolate_step_seconds(self, workers: int, worker_batch: float) -> float:
        """Return the seconds of a step, interpolated in logs between measured batches."""
        times = self.step_seconds[workers]
        logs = np.log(times.index.to_numpy(float)), np.log(times.to_numpy(float))
        return float(np.exp(np.interp(np.log(worker_batch), *logs)))

    def list_settings(self) -> list[tuple[int, int, float]]:
        """List all workers, global batches and learning rates that can be chosen."""
        return [
            (workers, workers * batch, lr)
            for workers, batch in self.step_seconds.index
            if workers * batch in self.batches
            for lr in self.list_lrs(workers * batch)
        ]

    def find_best(self, target: float, seeds: list[int]) -> tuple[int, int, float]:
        """Return the setting that is fastest to a target on some seeds."""
        return min(self.list_settings(), key=lambda setting: self.expected_seconds(*setting, target, seeds))

    def draw_steps(self, draw: int) -> pd.DataFrame:
        """Return one of the repeated measurements of all step times."""
        draws = self.steps["draw"].unique()
        return self.steps[self.steps["draw"] == draws[draw % len(draws)]].drop(columns="draw")

    def fit_ladder(self, draw: int) -> StepTimeFit:
        """Fit the step times that one sweep measures: one of the repeated measurements, chosen by `draw`."""
        index = draw % self.steps["draw"].nunique()
        if index not in self.step_fits:
            self.step_fits[index] = fit_step_time(self.draw_steps(draw))
        return self.step_fits[index]


def build_curve(log_examples: FloatArray, metrics: FloatArray, noise_scale: float, target: float) -> Curve:
    """Build a curve, which goes on as it came to its target; one that ended before stays where it was."""
    slope = (metrics[-1] - metrics[-3]) / (log_examples[-1] - log_examples[-3]) if metrics[-1] <= target else 0.0
    return Curve(log_examples, metrics, noise_scale, min(slope, 0.0))


def round_up(examples: int, batch: int) -> int:
    """Return the examples seen after the first step that has seen so many."""
    return -(-examples // batch) * batch
