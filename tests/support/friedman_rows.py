"""Rows of Friedman's first benchmark problem, a regressor for them, and changes of its columns.

y = 10 sin(pi x1 x2) + 20 (x3 - 1/2)^2 + 10 x4 + 5 x5 + noise, of ten uniform columns; the last five do nothing.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from torch import nn

from equipoise.drift.charts.sums import FixedPointSums
from equipoise.drift.detector import StreamDetector
from equipoise.drift.profiling.row_profile import AnsweredRows, build_table_profile, extract_row_features
from equipoise.drift.reference.profile import ReferenceProfile

COLUMN_COUNT = 10
COLUMN_DEVIATION = 12**-0.5  # standard deviation of a uniform column


def draw_rows(count: int, seed: int) -> NDArray[np.float64]:
    """Draw rows (count, 10), uniform between 0 and 1."""
    return np.random.default_rng(seed).random((count, COLUMN_COUNT))


def draw_targets(rows: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Return the numbers to be predicted, with noise of standard deviation 1."""
    noise = np.random.default_rng([seed, 1]).normal(0, 1, len(rows))
    curve = 10 * np.sin(np.pi * rows[:, 0] * rows[:, 1]) + 20 * (rows[:, 2] - 0.5) ** 2
    return curve + 10 * rows[:, 3] + 5 * rows[:, 4] + noise


def name_columns(rows: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Return rows as columns x1 to x10."""
    return {f"x{index + 1}": rows[:, index] for index in range(rows.shape[1])}


def shift_column(rows: NDArray[np.float64], column: int, deviations: float) -> NDArray[np.float64]:
    """Move one column by some standard deviations."""
    moved = rows.copy()
    moved[:, column] += deviations * COLUMN_DEVIATION
    return moved


def scale_column(rows: NDArray[np.float64], column: int, factor: float) -> NDArray[np.float64]:
    """Widen or narrow one column about its mean."""
    moved = rows.copy()
    moved[:, column] = 0.5 + factor * (rows[:, column] - 0.5)
    return moved


def correlate_columns(rows: NDArray[np.float64], first: int, second: int, correlation: float) -> NDArray[np.float64]:
    """Make two columns depend on each other by a Gaussian copula; each by itself stays uniform."""
    moved = rows.copy()
    z = norm.ppf(rows[:, [first, second]])
    moved[:, second] = norm.cdf(correlation * z[:, 0] + np.sqrt(1 - correlation**2) * z[:, 1])
    return moved


def drop_values(rows: NDArray[np.float64], column: int, share: float) -> NDArray[np.float64]:
    """Make a share of the values of one column missing, drawn with a seed from the rows."""
    moved = rows.copy()
    rng = np.random.default_rng(int(rows[0, 0] * 2**32))
    moved[rng.random(len(rows)) < share, column] = np.nan
    return moved


def fit_regressor(rows: NDArray[np.float64], targets: NDArray[np.float64], passes: int = 40) -> nn.Module:
    """Fit a small network to rows; missing values count as one half."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(COLUMN_COUNT, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    inputs, outputs = scale_inputs(rows), torch.from_numpy(targets).float()[:, None]
    for _ in range(passes):
        for batch in torch.randperm(len(rows)).split(64):
            optimizer.zero_grad()
            (model(inputs[batch]) - outputs[batch]).square().mean().backward()
            optimizer.step()
    return model


def scale_inputs(rows: NDArray[np.float64]) -> torch.Tensor:
    """Return rows as the regressor takes them."""
    return torch.from_numpy((np.nan_to_num(rows, nan=0.5) - 0.5) / COLUMN_DEVIATION).float()


@dataclass(frozen=True, eq=False)
class WatchedRegressor:
    """Regressor of rows and its reference profile."""

    model: nn.Module
    profile: ReferenceProfile

    @classmethod
    def build(cls, training: int, reference: int, holdout: int, seed: int = 0) -> "WatchedRegressor":
        """Fit the regressor and build the profile on rows drawn with a seed."""
        rows = draw_rows(training + reference + holdout, seed)
        targets = draw_targets(rows, seed)
        model = fit_regressor(rows[:training], targets[:training])
        end = training + reference
        parts = [
            answer_rows(model, part, target)
            for part, target in ((rows[training:end], targets[training:end]), (rows[end:], targets[end:]))
        ]
        return cls(model, build_table_profile(parts[0], holdout=parts[1] if holdout else None))

    def sum_steps(self, rows: NDArray[np.float64], step: int) -> list[FixedPointSums]:
        """Return the sums of consecutive steps of rows."""
        features = extract_row_features(self.profile, answer_rows(self.model, rows))
        starts = range(0, len(rows) - step + 1, step)
        return [self.profile.baseline.sum_features(features.select(np.arange(at, at + step))) for at in starts]

    def watch(
        self, clean: NDArray[np.float64], changed: NDArray[np.float64], run_length: float, step: int = 16
    ) -> tuple[StreamDetector, int | None]:
        """Return the detector of a stream that changes, at its alarm, and how many changed rows it took.

        The number is negative for a false alarm before the change, and None without an alarm.
        """
        detector = StreamDetector.start(self.profile, run_length)
        for index, sums in enumerate(self.sum_steps(np.concatenate([clean, changed]), step)):
            if detector.add_sums(sums, float(index)):
                return detector, detector.observed_images - len(clean)
        return detector, None


def answer_rows(
    model: nn.Module, rows: NDArray[np.float64], targets: NDArray[np.float64] | None = None
) -> AnsweredRows:
    """Return rows with the answers of the regressor."""
    with torch.no_grad():
        answers = model(scale_inputs(rows))[:, 0].numpy()
    return AnsweredRows(name_columns(rows), answers, targets)
