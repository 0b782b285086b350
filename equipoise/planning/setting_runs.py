"""Runs of one setting (global batch and learning rate): their average, and their scatter between seeds."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr

from equipoise.type_aliases import FloatArray

MIN_SEED_NOISE = 0.02  # between seeds, in log examples: no set of runs is trusted to be more alike
MAX_NEIGHBOUR_OCTAVES = 1.6  # between learning rates that are neighbours
PRIOR_SEED_NOISE = 0.15  # in log examples, where nothing was repeated: LeNet's runs to a target scatter by 0.1 to 0.2


class SettingRuns(NamedTuple):
    """Runs of one setting: the examples that each has seen, and whether it reached the target."""

    examples: FloatArray
    reached: NDArray[np.bool_]

    @classmethod
    def from_table(cls, runs: pd.DataFrame) -> "SettingRuns":
        """Build the arrays from a table with the columns examples and reached."""
        return cls(runs.examples.to_numpy(float), runs.reached.to_numpy() == 1)

    @property
    def reached_log_examples(self) -> FloatArray:
        """Natural log of the examples of each run that reached the target."""
        return np.log(self.examples[self.reached])

    @property
    def sum_of_squares(self) -> float:
        """Sum of squares of `reached_log_examples` about their mean."""
        return float(self.reached_log_examples.var() * len(self.reached_log_examples)) if self.reached.any() else 0.0


def group_by_setting(runs: pd.DataFrame) -> dict[tuple[float, float], SettingRuns]:
    """Group runs by global batch and learning rate; a missing learning rate counts as 0."""
    settings = zip(runs.global_batch.tolist(), runs.lr.fillna(0.0).tolist(), strict=True)
    row_indices: dict[tuple[float, float], list[int]] = defaultdict(list)
    for index, setting in enumerate(settings):
        row_indices[setting].append(index)
    all_runs = SettingRuns.from_table(runs)
    return {
        setting: SettingRuns(all_runs.examples[indices], all_runs.reached[indices])
        for setting, indices in row_indices.items()
    }


def pool_seed_noise(setting_runs: Iterable[SettingRuns]) -> float:
    """Return the standard deviation of log examples between seeds of one setting, pooled over all settings.

    Only runs that reached the target count.
    """
    terms = [(runs.sum_of_squares, runs.reached.sum() - 1) for runs in setting_runs if runs.reached.any()]
    freedom = sum(degrees for _, degrees in terms)
    if not freedom:
        return MIN_SEED_NOISE
    return max(MIN_SEED_NOISE, float(np.sqrt(sum(squares for squares, _ in terms) / freedom)))


def shrink_seed_noise(seed_noise: float, degrees_of_freedom: int) -> float:
    """Shrink the standard deviation between seeds to the prior, the more so the fewer degrees of freedom it has."""
    return float(np.sqrt((PRIOR_SEED_NOISE**2 + degrees_of_freedom * seed_noise**2) / (1 + degrees_of_freedom)))


def expected_examples(setting_runs: SettingRuns) -> float:
    """Return the average examples to the target if each run that was cut off is followed by another.

    All examples spent over the runs that reached the target (Hansen et al., "Real-parameter black-box optimization
    benchmarking", 2009); infinite if none did.
    """
    reached = int(setting_runs.reached.sum())
    return float(setting_runs.examples.sum()) / reached if reached else np.inf


def best_examples_by_batch(runs: pd.DataFrame) -> dict[float, float]:
    """Return the examples to the target of each global batch with its best learning rate.

    A batch that has not reached the target counts with the most examples that one of its runs has seen.
    """
    best: dict[float, float] = {}
    unreached = runs.groupby("global_batch").examples.max().to_dict()
    for (batch, _), setting_runs in group_by_setting(runs).items():
        best[batch] = min(best.get(batch, np.inf), expected_examples(setting_runs))
    return {batch: examples if np.isfinite(examples) else unreached[batch] for batch, examples in best.items()}


def extrapolate_examples(examples_by_batch: Mapping[float, float], batch: float) -> float:
    """Return the examples to the target that a batch needs at least, by those of smaller batches; 0 without any.

    By the hyperbola they lie on a straight line over the batch. Of the lines from the largest smaller batch through
    another one the flattest counts, and none that falls: single runs scatter.
    """
    smaller = {other: examples for other, examples in examples_by_batch.items() if other < batch}
    if not smaller:
        return 0.0
    largest = max(smaller)
    examples = smaller.pop(largest)
    slopes = [(examples - other_examples) / (largest - other) for other, other_examples in smaller.items()]
    return examples + max(0.0, min(slopes, default=0.0)) * (batch - largest)


def estimate_lr_curvature(runs: pd.DataFrame) -> float:
    """Return how the log of the examples grows with the squared distance from the best learning rate, in octaves.

    It is the median over the learning rates next to the best one of each batch; 0 where only one was tried.
    """
    examples_by_batch: dict[float, dict[float, float]] = defaultdict(dict)
    for (batch, lr), setting_runs in group_by_setting(runs).items():
        if lr > 0 and setting_runs.reached.any():
            examples_by_batch[batch][lr] = expected_examples(setting_runs)
    curvatures = []
    for examples in examples_by_batch.values():
        best = min(examples, key=lambda lr: examples[lr])
        for lr in examples.keys() - {best}:
            octaves = abs(math.log2(lr / best))
            if octaves <= MAX_NEIGHBOUR_OCTAVES:
                curvatures.append(math.log(examples[lr] / examples[best]) / octaves**2)
    return float(np.median(curvatures)) if curvatures else 0.0


def censored_mean_log(runs: pd.DataFrame, seed_noise: float) -> float:
    """Return the most likely mean of log examples, with runs that were cut off above their cap.

    Infinite if no run reached the target.
    """
    logs, reached = np.log(runs.examples.to_numpy(float)), runs.reached.to_numpy() == 1
    if not reached.any():
        return np.inf
    if reached.all():
        return float(logs.mean())

    def log_likelihood_slope(mean: float) -> float:
        deviation = (logs[~reached] - mean) / seed_noise
        return float(((logs[reached] - mean) / seed_noise).sum() + normal_hazard(deviation).sum())

    low, high = logs.min() - seed_noise, logs.max() + 10 * seed_noise * len(logs)
    return float(brentq(log_likelihood_slope, low, high))


def normal_hazard(deviation: FloatArray) -> FloatArray:
    """Return the density of a normal distribution over the share of it that lies above.

    By formula, because scipy.stats takes longer to import than all else that plans need of scipy.
    """
    log_density = -(deviation**2) / 2 - np.log(2 * np.pi) / 2
    return np.asarray(np.exp(log_density - log_ndtr(-deviation)))
