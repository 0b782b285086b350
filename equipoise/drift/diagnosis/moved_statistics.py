"""Name what has moved in rows of a table or in texts: the statistics themselves are the causes, not corruptions.

Charts compare each example with the reference examples of the same answer, so that runs of one answer are no alarm. A
column that moves takes the answers with it, and the other columns seem to move within each answer. So causes are told
by means over all answers: of a column that moves alone, only its own mean does.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.sums import sum_over_classes
from equipoise.drift.diagnosis.cause import Cause, is_significant, remove_label_shift
from equipoise.drift.diagnosis.effects import Effect
from equipoise.drift.diagnosis.statistic_sentences import SHARE_UNIT, describe_moved_statistic
from equipoise.drift.diagnosis.window import Window
from equipoise.drift.features.statistic_schema import JOINT_CAUSE, SCALE_CAUSE
from equipoise.proportions import Z_95
from equipoise.type_aliases import FloatArray

MIN_NAMED_Z = 3.5  # standard errors from which a statistic is named: one in 2,100 by chance
MIN_RELATIVE_Z = 0.75  # of what has moved most, from which a simpler statistic is named in its place
MAX_NAMED_CAUSES = 3
MIN_SQUARED_SHARE = 0.05  # of the sum of squared shifts, which a further cause must have to be named
NOT_A_CORRUPTION = -1  # in the place of the index of a corruption


@dataclass(frozen=True, eq=False)
class OverallShift:
    """Mean difference of each statistic from the reference, over all answers."""

    shifts: FloatArray
    """(statistics,) in the unit of each statistic"""
    scale: FloatArray
    """(statistics,) one standard deviation over all answers"""
    reference_mean: FloatArray
    """(statistics,) mean of the reference, in the window's mix of conditions"""
    standard_errors: float
    """standard errors of a mean, in standard deviations"""

    @property
    def z(self) -> FloatArray:
        """Differences in standard errors, (statistics,)."""
        return np.asarray(self.shifts / self.scale / self.standard_errors)


def measure_overall_shift(window: Window) -> OverallShift:
    """Measure how far the mean of each statistic has moved over all answers, in the window's mix of conditions."""
    usual, class_count = window.profile.baseline.usual, len(window.profile.class_names)
    reference = usual.counts.reshape(-1, class_count)
    condition_shares = sum_over_classes(window.counts, class_count) / max(window.image_count, 1)
    expected = (condition_shares[:, None] * reference / np.maximum(reference.sum(1, keepdims=True), 1)).ravel()
    current = window.counts / max(window.image_count, 1)
    reference_mean = expected @ usual.mean
    variance = expected @ (usual.scale**2 + (usual.mean - reference_mean) ** 2)
    shifts = window.shifts + (current - expected) @ usual.mean
    sizes = max(window.image_count, 1), float(usual.counts.sum())
    variance = pool_binary_variance(window.profile.schema.is_binary, variance, reference_mean, shifts, sizes)
    return OverallShift(shifts, np.sqrt(variance), reference_mean, float(np.sqrt(1 / sizes[0] + 1 / sizes[1])))


def pool_binary_variance(
    is_binary: NDArray[np.bool_],
    variance: FloatArray,
    reference_mean: FloatArray,
    shifts: FloatArray,
    sizes: tuple[float, float],
) -> FloatArray:
    """Return the variances with those of shares from window and reference together, if larger.

    A share that is 0 in the reference has no variance there: it would outweigh all else that has moved.
    """
    current, reference = sizes
    share = np.clip(reference_mean + shifts * current / (current + reference), 0, 1)
    return np.where(is_binary, np.maximum(variance, share * (1 - share)), variance)


def diagnose_statistics(window: Window, classes_moved: bool) -> Cause:
    """Return the most likely cause; `classes_moved` says whether a chart of predicted classes is over its threshold."""
    schema, overall = window.profile.schema, measure_overall_shift(window)
    moved = list_moved_statistics(window, overall)
    only_answers = classes_moved and not is_significant(remove_label_shift(window))
    if only_answers and len(moved) != 1 and schema.kind != "boxes":
        return Cause(
            "answer", f"the shares of the answers have changed; the {schema.example_name} of each look as before"
        )
    if not moved:
        joint = (
            f"no statistic of the {schema.example_name} has moved by itself, but together they are unlike the reference"
        )
        return Cause(JOINT_CAUSE if schema.kind == "table" else "features", joint)
    effects = [build_statistic_effect(window, overall, column) for column in moved]
    sentences = [
        describe_moved_statistic(schema.statistics[column], effect, float(overall.reference_mean[column]))
        for column, effect in zip(moved, effects, strict=True)
    ]
    return Cause(effects[0].cause, "; ".join(sentences), tuple(effects), is_sentence=True)


def list_moved_statistics(window: Window, overall: OverallShift) -> list[int]:
    """Return the columns of the statistics that have moved, the one that moved most first and one of each group.

    Statistics of two columns together count only where none of a single one has moved about as much. In a group, the
    first that has moved about as much is named: a column that moves is farther from its old mean too, so its spread
    seems to grow, but a wider column does not move. Values that have become rarer come last: others took their place.
    """
    schema, weighted = window.profile.schema, np.abs(overall.z) * window.profile.schema.cause_weights
    causes = np.array([statistic.cause for statistic in schema.statistics])
    candidates = np.flatnonzero((weighted >= MIN_NAMED_Z) & (causes != ""))
    alone = candidates[causes[candidates] != JOINT_CAUSE]
    if weighted[alone].max(initial=0.0) >= MIN_RELATIVE_Z * weighted[candidates].max(initial=0.0):
        candidates = alone
    total, groups = float((weighted[candidates] ** 2).sum()), set[str]()
    named: list[int] = []
    for column in candidates[np.argsort(-weighted[candidates], kind="stable")].tolist():
        group = schema.statistics[column].group
        is_small = named and weighted[column] ** 2 < MIN_SQUARED_SHARE * total
        if group in groups or is_small or len(named) == MAX_NAMED_CAUSES:
            continue
        same = [other for other in candidates.tolist() if schema.statistics[other].group == group]
        same.sort(key=lambda other: schema.statistics[other].is_binary and overall.shifts[other] < 0)
        named.append(next(other for other in same if weighted[other] >= MIN_RELATIVE_Z * weighted[column]))
        groups.add(group)
    return named


def build_statistic_effect(window: Window, overall: OverallShift, column: int) -> Effect:
    """Return how far one statistic has moved, with a 95 % interval, in its own unit."""
    statistic, weights = window.profile.schema.statistics[column], window.profile.schema.cause_weights
    margin = Z_95 * overall.standard_errors * float(overall.scale[column])
    middle = float(overall.shifts[column])
    ends = [middle, middle - margin, middle + margin]
    unit, mean = statistic.unit, float(overall.reference_mean[column])
    if statistic.cause.startswith(f"{SCALE_CAUSE} "):
        unit, ends = "times", [max(1 + end / max(mean, 1e-9), 0.0) for end in ends]
    elif unit == "times":
        ends = [float(np.exp(end)) for end in ends]
    elif unit.startswith(SHARE_UNIT):
        ends = [min(max(mean + end, 0.0), 1.0) for end in ends]
    value, low, high = ends
    squares = (overall.z * weights) ** 2
    detail = "higher" if middle > 0 else "lower"
    if statistic.is_binary or statistic.cause == JOINT_CAUSE:
        detail = f"{statistic.name} {detail}"
    return Effect(
        statistic.cause,
        detail,
        unit,
        value,
        low,
        high,
        explained=float(squares[column] / max(squares.sum(), 1e-12)),
        kind=NOT_A_CORRUPTION,
        place=0.0,
    )
