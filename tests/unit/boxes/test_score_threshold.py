import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.boxes.mean_average_precision import match_pictures
from equipoise.boxes.score_threshold import JudgedAnswers, choose_score_threshold, judge_answers


def judge_one_picture(answers, boxes):
    """Judge answers (score, class, x) and boxes (class, x, is a crowd), all of 10 x 10 pixels."""
    detections = np.array([[[x, 0, 10, 10, score, label] for score, label, x in answers]], float)
    targets = np.array([[[label, x, 0, 10, 10, crowd] for label, x, crowd in boxes]], float)
    return judge_answers(match_pictures(detections, targets))


def test_answers_are_judged_by_falling_score():
    judged = judge_one_picture([(0.3, 0, 50), (0.9, 0, 1), (0.8, 1, 20), (0.5, -1, 0)], [(0, 0, 0), (0, 20, 0)])
    assert judged.scores.tolist() == [0.9, 0.8, 0.3] and judged.is_right.tolist() == [True, False, False]
    assert judged.box_count == 2
    assert judged.precision_and_recall(0.5) == (0.5, 0.5)


def test_answers_in_crowds_and_unused_places_do_not_count():
    judged = judge_one_picture([(0.9, 0, 0), (0.8, 0, 50)], [(0, 0, 0), (0, 50, 1), (-1, 0, 0)])
    assert judged.scores.tolist() == [0.9] and judged.box_count == 1


@given(
    st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=30),
    st.integers(0, 30),
)
def test_no_other_threshold_has_a_better_f1(answers, missed):
    answers = sorted(answers, key=lambda answer: -answer[0])
    scores = np.array([score / 8 for score, _ in answers])
    is_right = np.array([right for _, right in answers])
    judged = JudgedAnswers(scores, is_right, int(is_right.sum()) + missed)

    def compute_f1(threshold):
        precision, recall = judged.precision_and_recall(threshold)
        return 2 * precision * recall / max(precision + recall, 1e-12)

    best = compute_f1(choose_score_threshold(judged))
    assert best >= max(compute_f1(threshold) for threshold in np.unique(scores)) - 1e-12


def test_answers_of_one_score_count_together():
    judged = JudgedAnswers(np.array([0.9, 0.5, 0.5, 0.5, 0.5, 0.5]), np.array([True, True] + [False] * 4), 2)
    assert choose_score_threshold(judged) == pytest.approx(0.7)  # the right answer at 0.5 does not come alone


def test_threshold_lies_between_what_counts_and_what_does_not():
    judged = JudgedAnswers(np.array([0.9, 0.8, 0.2]), np.array([True, True, False]), 2)
    assert choose_score_threshold(judged) == pytest.approx(0.5)
    assert choose_score_threshold(JudgedAnswers(np.zeros(0), np.zeros(0, bool), 3)) == 0.5
