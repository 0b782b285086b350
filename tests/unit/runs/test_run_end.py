"""How the laps of a run end it, and which of them is the best."""

import pytest

from equipoise.config import TrainConfig
from equipoise.runs.record import Record
from equipoise.runs.run_end import RunEnd, count_evaluations_since_best, find_best_lap, find_kept_lap, find_run_end
from equipoise.runs.target import Target
from tests.unit.runs.test_record import build_lap

TARGET = Target(value=0.8)
FALLING = Target(value=-0.8, lower_is_better=True)
"""mirror image of `TARGET`: a negated metric is as far from it"""


def build_laps(*metrics):
    """Build laps of 100 examples with these metrics."""
    return [build_lap(100 * (index + 1), metric) for index, metric in enumerate(metrics)]


def test_best_lap_is_the_first_with_the_best_metric():
    laps = build_laps(0.2, None, 0.7, 0.3, 0.7, None)
    assert find_best_lap(laps, TARGET) is laps[2]
    assert count_evaluations_since_best(laps, TARGET) == 2
    assert find_best_lap(laps, FALLING) is laps[0]
    assert count_evaluations_since_best(laps, FALLING) == 3
    assert find_best_lap(build_laps(-0.4, -0.2, -0.3), TARGET).metric == -0.2  # a metric may be negative, or 0
    assert find_best_lap(build_laps(-0.4, 0.0, -0.3), TARGET).metric == 0
    assert find_best_lap(laps, Target(value=None)) is laps[2]  # also of a run without a target


def test_without_an_evaluation_there_is_no_best_lap():
    assert find_best_lap([], TARGET) is None and find_best_lap(build_laps(None, None), TARGET) is None
    assert count_evaluations_since_best(build_laps(None), TARGET) == 0


@pytest.mark.parametrize(
    ("metrics", "end"),
    [
        ((), RunEnd(None)),
        ((0.2, 0.1), RunEnd(None)),
        ((0.2, 0.1, 0.2), RunEnd("stopped_early", "the metric has not improved in 2 evaluations")),
        ((0.2, 0.1, None, None), RunEnd(None)),
        ((0.2, 0.1, 0.3, 0.2), RunEnd(None)),
        ((0.2, 0.1, 0.1, 0.9), RunEnd("reached_target")),
        ((0.2, 0.3, 0.4, 0.1, 0.1), RunEnd("max_examples")),
    ],
)
def test_run_ends_by_its_target_its_examples_or_its_patience(metrics, end):
    assert find_run_end(build_laps(*metrics), TARGET, max_examples=500, patience=2) == end
    mirrored = [None if metric is None else -metric for metric in metrics]
    assert find_run_end(build_laps(*mirrored), FALLING, max_examples=500, patience=2) == end


@pytest.mark.parametrize("lower_is_better", [False, True])
def test_run_without_a_target_ends_at_its_examples(lower_is_better):
    target, laps = Target(value=None, lower_is_better=lower_is_better), build_laps(-1e9, 0.0, 1e9)
    assert find_run_end(laps[:2], target, max_examples=300, patience=None) == RunEnd(None)
    assert find_run_end(laps, target, max_examples=300, patience=None) == RunEnd("max_examples")


def test_run_without_patience_goes_on():
    assert find_run_end(build_laps(*[0.1] * 9), TARGET, max_examples=1000, patience=None) == RunEnd(None)


def test_kept_lap_depends_on_the_option():
    laps = build_laps(0.2, 0.7, 0.3)

    def build_record(keep, lower_is_better=False):
        return Record(
            config=TrainConfig(workload="digits", keep=keep),
            machine={},
            laps=laps,
            status="max_examples",
            target=0.1 if lower_is_better else 0.9,
            lower_is_better=lower_is_better,
            examples_to_target=None,
            test=0.3,
        )

    assert find_kept_lap(build_record("last")) is laps[2]
    assert find_kept_lap(build_record("best")) is laps[1]
    assert find_kept_lap(build_record("best", lower_is_better=True)) is laps[0]
