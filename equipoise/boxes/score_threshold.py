"""Score from which a box counts: the one with the best F1, from the rows of `mean_average_precision`."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.boxes.matching import AREA_RANGES, OVERLAPS
from equipoise.boxes.mean_average_precision import ANSWER_COLUMNS, TARGET_COLUMNS, unpack_bits
from equipoise.type_aliases import FloatArray

WHOLE_RANGE, FIRST_OVERLAP = 0, 0  # things of all sizes, at an overlap of 0.50


@dataclass(frozen=True, eq=False)
class JudgedAnswers:
    """Answers of a detector, by falling score, and whether each is right; those in crowds are left out."""

    scores: FloatArray
    is_right: NDArray[np.bool_]
    box_count: int
    """labelled boxes, crowds left out"""

    def precision_and_recall(self, threshold: float) -> tuple[float, float]:
        """Return the share of right ones among answers from a score on, and the share of boxes that these find."""
        counts = self.scores >= threshold
        right = float(self.is_right[counts].sum())
        return right / max(float(counts.sum()), 1.0), right / max(self.box_count, 1)


def judge_answers(rows: FloatArray) -> JudgedAnswers:
    """Return the answers in the rows of pictures, judged at an overlap of 0.50."""
    answer_count = int(rows[0, 0]) if len(rows) else 0
    answers = rows[:, 1 : 1 + ANSWER_COLUMNS * answer_count].reshape(-1, ANSWER_COLUMNS)
    boxes = rows[:, 1 + ANSWER_COLUMNS * answer_count :].reshape(-1, TARGET_COLUMNS)
    flags = unpack_bits(answers[:, 2 + WHOLE_RANGE], 2 * len(OVERLAPS))
    counts = (answers[:, 1] >= 0) & ~flags[:, len(OVERLAPS) + FIRST_OVERLAP]
    answers, matched = answers[counts], flags[counts, FIRST_OVERLAP]
    order = np.argsort(-answers[:, 0], kind="stable")
    is_counted = unpack_bits(boxes[:, 1], len(AREA_RANGES))[:, WHOLE_RANGE] & (boxes[:, 0] >= 0)
    return JudgedAnswers(answers[order, 0], matched[order], int(is_counted.sum()))


def choose_score_threshold(judged: JudgedAnswers) -> float:
    """Return the score from which answers have the best F1: halfway to the highest score that is left out."""
    if not len(judged.scores):
        return 0.5
    right, given = np.cumsum(judged.is_right), np.arange(1, len(judged.scores) + 1)
    f1 = 2 * right / (given + max(judged.box_count, 1))
    is_last_of_score = np.append(np.diff(judged.scores) < 0, True)
    best = int(np.where(is_last_of_score, f1, -1.0).argmax())
    lower = judged.scores[best + 1] if best + 1 < len(judged.scores) else 0.0
    return float(judged.scores[best] + lower) / 2
