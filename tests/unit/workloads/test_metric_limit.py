"""A sweep is not started towards a target that its metric can never reach."""

from dataclasses import replace

import pytest

from equipoise.config import TrainConfig
from equipoise.runs.target import Target
from equipoise.workloads import load_workload
from equipoise.workloads.checks.metric_limit import find_best_metric, require_possible_target
from equipoise.workloads.table.regression import r2_score
from tests.support.errors import raises_code

DIGITS = TrainConfig(workload="digits", batch_size=8, lr=0.1)


def test_accuracy_is_one_at_best_and_cannot_be_a_percentage():
    workload = load_workload(DIGITS)
    require_possible_target(workload, Target(value=1.0))
    with raises_code("option-range", "at least 95", "1 at best", "--target"):
        require_possible_target(workload, Target(value=95.0))


def test_nats_are_above_zero():
    workload = load_workload(replace(DIGITS, workload="text"))
    require_possible_target(workload, Target(value=0.01, lower_is_better=True))
    with raises_code("option-range", "at most -1", "above 0"):
        require_possible_target(workload, Target(value=-1.0, lower_is_better=True))


@pytest.mark.parametrize("value", [None, 95.0])
def test_a_metric_of_the_users_own_has_no_known_limit(value):
    workload = replace(load_workload(DIGITS), metric=lambda outputs, targets: 100.0 * (outputs.argmax(1) == targets))
    assert find_best_metric(workload) is None
    require_possible_target(workload, Target(value=value))


def test_a_score_counts_instead_of_the_metric_that_it_is_computed_from():
    workload = replace(load_workload(DIGITS), score=r2_score, metric=lambda outputs, targets: outputs)
    with raises_code("option-range", "at least 2"):
        require_possible_target(workload, Target(value=2.0))
