"""The watch over one stream of requests: sums in, charts on, and whether something changed.

It is moved by sums alone, in order; two watches that were given the same sums are in the same state to the last bit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.baseline import CHARTED_FEATURES
from equipoise.drift.charts.betting_test import BettingTest
from equipoise.drift.charts.cusum import (
    MIN_STEP_IMAGES,
    MIN_STREAM_IMAGES,
    SHIFT_SIZES,
    CusumState,
    StepSums,
    build_cusum_parameters,
    initial_cusum_state,
)
from equipoise.drift.charts.sums import FixedPointSums
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.type_aliases import FloatArray

MAX_REMEMBERED_STEPS = 512  # steps that are remembered one by one, to tell since when
CLEAR_MARGIN = np.log(10)  # by so much charts must fall below their threshold before an alarm is over
SCORE_CHART_COUNT = 2 * len(SHIFT_SIZES) * len(CHARTED_FEATURES)
CLASS_AND_FEATURE_CHARTS = ("class gone", "class more often", *("features",) * 3)


CHART_NAMES = tuple(dict.fromkeys((*CHARTED_FEATURES, *CLASS_AND_FEATURE_CHARTS)))
"""of charts; several may share one"""


def chart_name(chart_index: int) -> str:
    """What a chart looks at, by its place among the values."""
    return (
        CHARTED_FEATURES[chart_index % len(CHARTED_FEATURES)]
        if chart_index < SCORE_CHART_COUNT
        else CLASS_AND_FEATURE_CHARTS[chart_index - SCORE_CHART_COUNT]
    )


@dataclass(frozen=True)
class Alarm:
    """A chart that was too high."""

    observed_images: int
    """seen until then"""
    unix_seconds: float
    """seconds since 1970"""
    chart_index: int
    """its place among the values"""


@dataclass(eq=False)
class StreamDetector:
    """The state of one stream."""

    profile: ReferenceProfile
    run_length: float
    """clean pictures to a false alarm, as asked"""
    charts: CusumState
    evidence: BettingTest
    pending: FixedPointSums
    """pictures too few for a step"""
    ends: NDArray[np.int64]
    """pictures looked at until the end of each of the latest steps"""
    asked: NDArray[np.int64]
    """pictures answered until then, looked at or not"""
    times: FloatArray
    """seconds since 1970, of the same"""
    rows: FixedPointSums
    """their sums, without features"""
    zero: NDArray[np.int64]
    """(charts of scores, then of classes) pictures seen when each was last at nothing"""
    trace: NDArray[np.float32]
    """how high the charts of each name were after each of the latest steps, and the threshold"""
    alarm: Alarm | None = None
    over: int = 0
    """pictures seen when the last alarm was over: what changed since, changed after that"""

    @classmethod
    def start(cls, profile: ReferenceProfile, run_length: float) -> "StreamDetector":
        """Before the first request."""
        layout = profile.baseline.layout
        state = initial_cusum_state(
            build_cusum_parameters(profile.baseline.usual), layout.statistic_count, layout.fourier_count
        )
        none = np.zeros(0, np.int64)
        rows = np.zeros((0, layout.slices["waves"].start), np.int64)
        zero = np.zeros(state.scores.size + state.classes.size, np.int64)
        evidence = BettingTest.initial(layout.statistic_count)
        trace = np.zeros((0, len(CHART_NAMES) + 1), np.float32)
        return cls(profile, run_length, state, evidence, layout.empty_row(), none, none, np.zeros(0), rows, zero, trace)

    @property
    def observed_images(self) -> int:
        """Pictures that charts have seen."""
        return int(self.ends[-1]) if len(self.ends) else 0

    @property
    def answered_images_in_steps(self) -> int:
        """Pictures that were answered until the last step."""
        return int(self.asked[-1]) if len(self.asked) else 0

    @property
    def answered_images(self) -> int:
        """Pictures that were answered, those included that are too few for a step."""
        return self.answered_images_in_steps + int(self.pending[self.profile.baseline.layout.slices["all"]][0])

    def add_sums(self, sums: FixedPointSums, unix_seconds: float) -> bool:
        """Some more pictures; whether they set off an alarm."""
        layout = self.profile.baseline.layout
        self.pending = self.pending + sums
        size = int(self.pending[layout.slices["classes"]].sum())
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
            layout.read_part(row, name) for name in ("classes", "scores", "waves", "low", "high")
        )
        usual = counts @ self.profile.baseline.usual.waves
        self.charts.update(StepSums(counts[None], scores[None], (waves - usual)[None]))
        self.evidence.update(low, high)

    def _check_alarm(self, unix_seconds: float) -> bool:
        """Whether a chart is too high, and none was before."""
        values, threshold = self.values(), self.threshold()
        most = values.max()
        self.charts.limit(2 * self._chart_thresholds())  # or what rose for an hour would take an hour to come down
        left = self.values() if most > threshold else values
        self.trace = np.concatenate([self.trace, build_trace_row(left, threshold)])[-MAX_REMEMBERED_STEPS:]
        if self.alarm is not None and most < threshold - CLEAR_MARGIN:
            self.alarm, self.over = None, self.observed_images
        if self.alarm is not None or most < threshold or self.observed_images < MIN_STREAM_IMAGES:
            return False
        self.alarm = Alarm(self.observed_images, unix_seconds, int(values.argmax()))
        return True

    def values(self) -> FloatArray:
        """(charts,) as logarithms of how many clean pictures it takes one by itself to be so high."""
        return np.asarray(
            self.profile.calibration.scale_values(self.charts.values(), *self._step_size_and_run_length())[0]
        )

    def highest_by_name(self) -> dict[str, float]:
        """The highest value of each name's charts."""
        return dict(zip(CHART_NAMES, highest_by_chart_name(self.values()).tolist(), strict=True))

    def threshold(self) -> float:
        """What the highest must reach for an alarm."""
        return float(self.profile.calibration.threshold(self.run_length, *self._step_size_and_run_length())[0])

    def _chart_thresholds(self) -> FloatArray:
        """(charts,) the same, for each as it comes."""
        return np.asarray(
            self.profile.calibration.chart_thresholds(self.run_length, *self._step_size_and_run_length())[0]
        )

    def _step_size_and_run_length(self) -> tuple[FloatArray, FloatArray]:
        """How many pictures the last step had, and how long runs are."""
        size = np.diff(self.ends[-2:])[0] if len(self.ends) > 1 else max(self.observed_images, MIN_STEP_IMAGES)
        return np.array([float(size)]), self.charts.runs.mean_run_length()

    def state_arrays(self) -> dict[str, NDArray[Any]]:
        """All that changes, for a file."""
        found = {name: getattr(self, name) for name in ("pending", "ends", "asked", "times", "rows", "zero", "trace")}
        found |= {f"charts.{one.name}": getattr(self.charts, one.name) for one in self._saved_chart_fields()}
        found |= {f"runs.{one.name}": getattr(self.charts.runs, one.name) for one in fields(self.charts.runs)}
        alarm = self.alarm
        found["alarm"] = np.array(
            [] if alarm is None else [alarm.observed_images, alarm.unix_seconds, alarm.chart_index], np.float64
        )
        return found | {"wealth": self.evidence.wealth, "over": np.array(self.over)}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on where `state` was; it must be of the same reference."""
        for name in ("pending", "ends", "asked", "times", "rows", "zero", "trace"):
            setattr(self, name, validate_state_array(arrays[name], getattr(self, name)))
        for one in self._saved_chart_fields():
            setattr(
                self.charts,
                one.name,
                validate_state_array(arrays[f"charts.{one.name}"], getattr(self.charts, one.name)),
            )
        for one in fields(self.charts.runs):
            setattr(
                self.charts.runs,
                one.name,
                validate_state_array(arrays[f"runs.{one.name}"], getattr(self.charts.runs, one.name)),
            )
        self.evidence.wealth = validate_state_array(arrays["wealth"], self.evidence.wealth)
        self.over = int(arrays["over"])
        alarm = arrays["alarm"].tolist()
        self.alarm = Alarm(int(alarm[0]), alarm[1], int(alarm[2])) if alarm else None

    def _saved_chart_fields(self) -> list[Any]:
        return [one for one in fields(self.charts) if one.name not in ("rules", "streams", "runs")]


def highest_by_chart_name(values: FloatArray) -> FloatArray:
    """Of the charts of each name."""
    found = np.concatenate(
        [
            values[:SCORE_CHART_COUNT].reshape(-1, len(CHARTED_FEATURES)).max(0),
            np.full(len(CHART_NAMES) - len(CHARTED_FEATURES), -np.inf),
        ]
    )
    np.maximum.at(found, [CHART_NAMES.index(name) for name in CLASS_AND_FEATURE_CHARTS], values[SCORE_CHART_COUNT:])
    return found


def build_trace_row(values: FloatArray, threshold: float) -> NDArray[np.float32]:
    """A row of the trace."""
    return np.append(highest_by_chart_name(values), threshold)[None].astype(np.float32)


def validate_state_array(array: NDArray[Any], expected: NDArray[Any]) -> NDArray[Any]:
    """What was kept, if it has the form of what is there; the first axis of what grows may differ."""
    if array.dtype != expected.dtype or array.shape[1:] != expected.shape[1:]:
        raise ValueError(f"the state kept is of another form ({array.dtype} {array.shape})")
    return array.copy()
