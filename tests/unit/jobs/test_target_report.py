"""Several targets and the schedule through them as terminal text."""

from dataclasses import replace

import pytest

from equipoise.planning.build_document import build_plan_document
from equipoise.planning.interval import IntervalEstimate
from jobs.cli.plan_report import format_plan
from jobs.cli.target_report import describe_critical_batch, describe_targets
from tests.support.several_targets import build_targets_request


@pytest.fixture(scope="module")
def document():
    return build_plan_document(build_targets_request())


def test_critical_batch_is_shown_with_its_interval_and_unit(document):
    estimate = IntervalEstimate(value=26.3, low=17.1, high=43.2)
    target = replace(document.targets[0], critical_batch=estimate)
    assert describe_critical_batch(target, "tokens", 64) == "26 (17 to 43) examples (1,664 tokens) at 2.4"
    assert describe_critical_batch(target, "examples", 1) == "26 (17 to 43) examples at 2.4"
    assert describe_critical_batch(replace(target, critical_batch=None), "tokens", 64) == "not known at 2.4"


def test_schedule_is_two_lines_with_its_stages_and_what_it_assumes(document):
    batches, stages, note = describe_targets(document)
    assert batches.count(" at ") == 3
    assert ": 1 worker x 64 at lr 0.08 until 2.4, 1 worker x 256 at lr 0.16 until 2; predicted" in stages
    assert f"{document.schedule.gain:.0%} less" in stages
    assert "does not depend on the batch that was used before" in note and "equipoise train --plan" in note
    assert "\n".join([batches, stages, note]) in format_plan(document)


def test_schedule_of_one_setting_says_that_it_gains_nothing(document):
    first = document.schedule.stages[0]
    constant = replace(document.schedule, stages=(first, replace(first, until=2.0)))
    assert "gains nothing" in describe_targets(replace(document, schedule=constant))[1]


def test_plan_of_one_target_has_none_of_these_lines(document):
    assert describe_targets(replace(document, targets=(), schedule=None)) == []
    assert len(describe_targets(replace(document, schedule=None))) == 1
