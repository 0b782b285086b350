"""Tests of recorded curves: crossings, marks, and what a replayed trial sees of a curve."""

import numpy as np
import pytest

from benchmarks.search_policies.collect_curves import build_row
from benchmarks.search_policies.record_grid import MARK_RATIO, next_mark
from benchmarks.search_policies.recorded_curves import Curve, round_up
from benchmarks.search_policies.replay_budget import PlayedTrial, SweepSettings
from equipoise.planning.search import Suggestion

CURVE = Curve(np.log([1000.0, 2000.0, 4000.0, 8000.0]), np.array([3.0, 2.6, 2.8, 2.2]), noise_scale=5.0)


def test_crossing_is_interpolated_over_the_log_of_the_examples():
    examples, reached = CURVE.find_crossing(2.5)
    assert reached
    assert examples == pytest.approx(4000 * np.sqrt(2))


def test_first_of_several_crossings_counts():
    assert CURVE.find_crossing(2.8)[0] == pytest.approx(1000 * np.sqrt(2))


def test_curve_that_stays_above_a_target_is_cut_off_at_its_end():
    assert CURVE.find_crossing(2.0) == (pytest.approx(8000), False)


@pytest.mark.parametrize(("examples", "metric"), [(500, 3.0), (1000, 3.0), (4000 * np.sqrt(2), 2.5), (20_000, 2.2)])
def test_metric_between_evaluations_and_beyond_them(examples, metric):
    assert CURVE.metric_at(examples) == pytest.approx(metric)


def test_marks_grow_by_their_ratio_and_lie_beyond_what_was_seen():
    marks = [next_mark(0, is_near=True)]
    while len(marks) < 30:
        marks.append(next_mark(marks[-1], is_near=True))
    np.testing.assert_allclose(np.divide(marks[1:], marks[:-1]), MARK_RATIO, rtol=1e-3)


def test_coarse_marks_are_some_of_the_fine_ones():
    fine = next_mark(5000, is_near=True)
    coarse = next_mark(5000, is_near=False)
    assert coarse in (fine, next_mark(fine, is_near=True))


def test_row_of_a_trial_has_each_metric_at_the_mark_before_its_step():
    record = {"batch": 100, "lr": 0.1, "seed": 3, "target": 2.4, "noise_scale": None,
              "seen": [300, 500, 550], "metrics": [2.61234, 2.5, 2.45]}  # fmt: skip
    row = build_row(record, [210, 301, 500, 700])
    assert [row[str(mark)] for mark in (210, 301, 500, 700)] == [2.6123, None, 2.5, None]
    assert round_up(210, 100) == 300


def play_trial(**settings):
    """Return a trial at batch 100 whose steps take a second, evaluated every 1,000 examples in 5 seconds."""
    common = SweepSettings(targets=(2.7, 2.5), eval_every=1000, evaluation_seconds=5.0, **settings)
    return PlayedTrial(suggestion=Suggestion(100, 0.1, 0), curve=CURVE, step_seconds=1.0, start=50.0, settings=common)


def test_played_trial_ends_at_the_evaluation_after_the_crossing():
    trial = play_trial()
    trial.play_until(1000.0)
    assert trial.reached
    assert [lap.seen for lap in trial.laps] == [1000, 2000, 3000, 4000, 5000, 6000]
    assert trial.clock == 6 * (10 + 5)
    record = trial.build_record("reached_target", 1000.0)
    before, after = (CURVE.metric_at(examples) for examples in (5000, 6000))
    assert record.examples_to_target == pytest.approx(5000 + 1000 * (before - 2.5) / (before - after))


def test_played_trial_has_seen_the_steps_since_its_last_evaluation_too():
    trial = play_trial()
    trial.play_until(50 + 15 + 4.5)
    assert not trial.reached
    record = trial.build_record("pruned", 50 + 15 + 4.5)
    assert [(lap.seen, lap.metric) for lap in record.laps] == [(1000, 3.0), (1400, None)]
