"""Settings that a training run has refuted are not planned with, and a plan without any others says so."""

from dataclasses import replace

import pytest

from equipoise.planning.build_document import PlanRequest, build_plan_document
from equipoise.planning.devices.device_sections import find_section, split_section
from equipoise.planning.examples_to_target import fit_examples_curve
from equipoise.planning.step_time_fit import fit_step_time
from tests.support.device_tables import build_device_steps, build_shared_runs
from tests.support.plan_documents import build_step_times


@pytest.fixture(scope="module")
def measured():
    """Return a request and its fits."""
    request = PlanRequest(system=build_device_steps(["h100"]).drop(columns="device"), statistical=build_shared_runs())
    return request, fit_step_time(request.system), fit_examples_curve(request.statistical)


def list_settings(document):
    return {(option.global_batch, option.lr) for option in document.options}


def test_settings_that_were_refuted_are_left_out(measured):
    request, *fits = measured
    document = build_plan_document(request, *fits)
    settings, best = list_settings(document), (document.plan.global_batch, document.plan.lr)
    assert len(settings) > 1 and not [text for text in document.warnings if "missed the target" in text]
    others = build_plan_document(replace(request, excluded_settings=frozenset([best])), *fits)
    assert (others.plan.global_batch, others.plan.lr) != best and list_settings(others) == settings - {best}


def test_without_any_other_setting_the_reason_is_told(measured):
    request, *fits = measured
    settings = list_settings(build_plan_document(request, *fits))
    document = build_plan_document(replace(request, excluded_settings=frozenset(settings)), *fits)
    assert document.plan is document.runner_up is document.knee is None and document.options == document.front == ()
    assert document.warnings[0].startswith("with every setting that was measured a training run missed the target")


def test_limits_that_nothing_keeps_are_told_with_the_fastest_and_the_cheapest(measured):
    request, *fits = measured
    options = build_plan_document(request, *fits).options
    fastest = min(option.seconds.value for option in options)
    cheapest = min(option.worker_seconds for option in options)
    document = build_plan_document(replace(request, deadline_seconds=fastest / 2), *fits)
    assert document.plan is None and document.warnings[0] == (
        f"no plan is within the given limits: the fastest takes {fastest:,.4g} s,"
        f" the cheapest {cheapest:,.4g} worker-seconds"
    )


def test_a_table_without_devices_has_one_section():
    section = build_step_times()
    assert split_section(section) == [section] and find_section(section, "a10") is section
