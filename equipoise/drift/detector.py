"""Drift detector of one stream of requests: sums update the charts, and a chart over its threshold raises an alarm.

Its state depends only on the sums and their order; two detectors that were given the same sums are bit-equal.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.betting_test import BettingTest
from equipoise.drift.charts.chart_names import ChartNames
from equipoise.drift.charts.cusum import (
    MIN_STEP_IMAGES,
    MIN_STREAM_IMAGES,
    CusumState,
    StepSums,
    build_cusum_parameters,
    initial_cusum_state,
)
from equipoise.drift.charts.sums import FixedPointSums
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.errors import EquipoiseError
from equipoise.type_aliases import FloatArray

MAX_REMEMBERED_STEPS = 512  # latest steps that are kept one by one, to locate the change
RECENT_IMAGES = 256  # latest observed images, in whole steps, of which the shares of conditions are a gauge
CLEAR_MARGIN = np.log(10)  # by which charts must fall below their threshold before an alarm is over


@dataclass(frozen=True)
class Alarm:
    """Alarm of a chart that exceeded its threshold."""

    observed_images: int
    """images observed until then"""
    answered_images: int
    """images answered until then, observed or not"""
    unix_seconds: float
    """time in seconds since 1970"""
    chart_index: int
    """index of the chart among the values"""


@dataclass(eq=False)
class StreamDetector:
    """Detector of one stream: charts, latest steps and alarm."""

    profile: ReferenceProfile
    run_length: float
    """requested mean number of images without drift per false alarm"""
    charts: CusumState
    evidence: BettingTest
    pending: FixedPointSums
    """sums of images that are too few for a step"""
    ends: NDArray[np.int64]
    """(steps,) images observed until the end of each of the latest steps"""
    asked: NDArray[np.int64]
    """(steps,) images answered until then, observed or not"""
    times: FloatArray
    """(steps,) time of each of the latest steps in seconds since 1970"""
    rows: FixedPointSums
    """(steps, integers) sums of the latest steps, without Fourier features"""
    zero: NDArray[np.int64]
    """(score charts, then class charts) images observed when each chart was last 0"""
    trace: NDArray[np.float32]
    """(steps, names + 1) highest chart of each name after each of the latest steps, and the threshold"""
    alarm: Alarm | None = None
    """current alarm, if any"""
    over: int = 0
    """images observed when the last alarm ended: a later change began after that"""

    @classmethod
    def start(cls, profile: ReferenceProfile, run_length: float) -> "StreamDetector":
        """Create the detector before the first request."""
        layout = profile.baseline.layout
        parameters = build_cusum_parameters(profile.baseline.usual, condition_count=layout.condition_count)
        state = initial_cusum_state(parameters, layout.statistic_count, layout.fourier_count)
        none = np.zeros(0, np.int64)
        rows = np.zeros((0, layout.slices["waves"].start), np.int64)
        zero = np.zeros(state.scores.size + state.classes.size, np.int64)
        evidence = BettingTest.initial(layout.statistic_count)
        trace = np.zeros((0, len(ChartNames(profile.schema.names).unique) + 1), np.float32)
        return cls(profile, run_length, state, evidence, layout.empty_row(), none, none, np.zeros(0), rows, zero, trace)

    @property
    def chart_names(self) -> ChartNames:
        """Names of the charts, in the order of their values."""
        return ChartNames(self.profile.schema.names)

    @property
    def observed_images(self) -> int:
        """Number of images that the charts have seen."""
        return int(self.ends[-1]) if len(self.ends) else 0

    @property
    def answered_images_in_steps(self) -> int:
        """Number of images answered until the end of the last step."""
        return int(self.asked[-1]) if len(self.asked) else 0

    @property
    def answered_images(self) -> int:
        """Number of images answered, including those still too few for a step."""
        return self.answered_images_in_steps + int(self.pending[self.profile.baseline.layout.slices["all"]][0])

    def add_sums(self, sums: FixedPointSums, unix_seconds: float) -> bool:
        """Add the sums of some images and return whether they raised an alarm."""
        layout = self.profile.baseline.layout
        self.pending = self.pending + sums
        size = int(self.pending[layout.slices["cells"]].sum())
        if size < MIN_STEP_IMAGES:
            return False
        row, self.pending = self.pending, layout.empty_row()
        self._update_charts(row)
        self.ends = np.append(self.ends, self.observed_images + size)[-MAX_REMEMBERED_STEPS:]
        self.asked = np.append(self.asked, self.answered_images_in_steps + int(row[layout.slices["all"]][0]))[
            -MAX_REMEMBERED_STEPS:
        ]
        self.times = np.append(self.times, unix_seconds)[-MAX_REMEMBERED_STEPS:]
        self.rows = np.concatenate([self.rows, row[None, : self.rows.shape[1]]])[-MAX_REMEMBERED_STEPS:]
        state = np.concatenate([self.charts.scores.ravel(), self.charts.classes.ravel()])
        self.zero = np.where(state == 0, self.observed_images, self.zero)
        return self._check_alarm(unix_seconds)

    def _update_charts(self, row: FixedPointSums) -> None:
        layout = self.profile.baseline.layout
        counts, scores, waves, low, high = (
            layout.read_part(row, name) for name in ("cells", "scores", "waves", "low", "high")
        )
        expected = counts @ self.profile.baseline.usual.waves
        self.charts.update(StepSums(counts[None], scores[None], (waves - expected)[None]))
        self.evidence.update(low, high)

    def _check_alarm(self, unix_seconds: float) -> bool:
        """Return whether a chart exceeds its threshold while no alarm is active, and record the alarm."""
        values, threshold = self.values(), self.threshold()
        highest = values.max()
        self.charts.limit(2 * self._chart_thresholds())  # or a chart that rose for an hour would take an hour to fall
        limited = self.values() if highest > threshold else values
        self.trace = np.concatenate([self.trace, self._build_trace_row(limited, threshold)])[-MAX_REMEMBERED_STEPS:]
        if self.alarm is not None and highest < threshold - CLEAR_MARGIN:
            self.alarm, self.over = None, self.observed_images
        if self.alarm is not None or highest < threshold or self.observed_images < MIN_STREAM_IMAGES:
            return False
        chart_index = int(values.argmax())
        self.alarm = Alarm(self.observed_images, self.answered_images_in_steps, unix_seconds, chart_index)
        return True

    def _build_trace_row(self, values: FloatArray, threshold: float) -> NDArray[np.float32]:
        return np.append(self.chart_names.highest_by_name(values), threshold)[None].astype(np.float32)

    def values(self) -> FloatArray:
        """Return (charts,): each chart as the logarithm of its own run length, in images without drift."""
        return np.asarray(
            self.profile.calibration.scale_values(self.charts.values(), *self._step_size_and_run_length())[0]
        )

    def highest_by_name(self) -> dict[str, float]:
        """Return the highest value among the charts of each name."""
        names = self.chart_names
        return dict(zip(names.unique, names.highest_by_name(self.values()).tolist(), strict=True))

    def recent_condition_shares(self) -> dict[str, float]:
        """Return the share of each known condition in the latest images, by name; empty if only one is known."""
        if len({*self.profile.condition_names}) < 2:
            return {}
        recent_rows = self.rows[self.ends > self.observed_images - RECENT_IMAGES]
        return self.profile.share_by_name(self.profile.baseline.layout.read_condition_counts(recent_rows).sum(0))

    def threshold(self) -> float:
        """Return the value of the highest chart at which an alarm is raised."""
        return float(self.profile.calibration.threshold(self.run_length, *self._step_size_and_run_length())[0])

    def _chart_thresholds(self) -> FloatArray:
        """Return (charts,) the alarm threshold in the unscaled values of each chart."""
        return np.asarray(
            self.profile.calibration.chart_thresholds(self.run_length, *self._step_size_and_run_length())[0]
        )

    def _step_size_and_run_length(self) -> tuple[FloatArray, FloatArray]:
        """Return the size of the last step and the class run length, both in images."""
        size = np.diff(self.ends[-2:])[0] if len(self.ends) > 1 else max(self.observed_images, MIN_STEP_IMAGES)
        return np.array([float(size)]), self.charts.runs.mean_run_length()

    def state_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the state by name, to be stored in a file."""
        arrays = {name: getattr(self, name) for name in ("pending", "ends", "asked", "times", "rows", "zero", "trace")}
        arrays |= {f"charts.{field.name}": getattr(self.charts, field.name) for field in self._saved_chart_fields()}
        arrays |= {f"runs.{field.name}": getattr(self.charts.runs, field.name) for field in fields(self.charts.runs)}
        arrays["alarm"] = np.array(astuple(self.alarm) if self.alarm else [], np.float64)
        return arrays | {"wealth": self.evidence.wealth, "over": np.array(self.over)}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore a state returned by `state_arrays`; it must come from the same reference."""
        for name in ("pending", "ends", "asked", "times", "rows", "zero", "trace"):
            setattr(self, name, validate_state_array(arrays[name], getattr(self, name)))
        for field in self._saved_chart_fields():
            state = validate_state_array(arrays[f"charts.{field.name}"], getattr(self.charts, field.name))
            setattr(self.charts, field.name, state)
        for field in fields(self.charts.runs):
            state = validate_state_array(arrays[f"runs.{field.name}"], getattr(self.charts.runs, field.name))
            setattr(self.charts.runs, field.name, state)
        self.evidence.wealth = validate_state_array(arrays["wealth"], self.evidence.wealth)
        self.over = int(arrays["over"])
        alarm = arrays["alarm"].tolist()
        self.alarm = Alarm(int(alarm[0]), int(alarm[1]), alarm[2], int(alarm[3])) if alarm else None

    def _saved_chart_fields(self) -> list[Any]:
        return [field for field in fields(self.charts) if field.name not in ("rules", "streams", "runs")]


def validate_state_array(array: NDArray[Any], expected: NDArray[Any]) -> NDArray[Any]:
    """Return a copy of a saved array; refuse another dtype or shape, except for the length of the first axis."""
    if array.dtype != expected.dtype or array.shape[1:] != expected.shape[1:]:
        raise EquipoiseError(
            "state-invalid",
            f"cannot restore the detector state: an array is {array.dtype} {array.shape}, "
            f"expected {expected.dtype} {expected.shape} except for the length of the first axis",
        )
    return array.copy()
