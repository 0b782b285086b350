"""What a plan says of its energy, number by number."""

from dataclasses import replace

import pytest

from equipoise.planning.build_document import PlanRequest
from equipoise.planning.devices.device_plan import build_device_plan
from equipoise.planning.devices.device_prices import CostLimits
from equipoise.planning.energy.plan_energy import (
    MIN_SAVED_SHARE,
    add_energy_front,
    add_joules,
    describe_energy,
    format_energy,
    format_energy_header,
    label_energy,
)
from equipoise.planning.energy.step_energy import StepEnergy
from equipoise.planning.exchanges.exchange_plan import ExchangeRequest
from tests.support.device_tables import build_device_steps, build_shared_runs


@pytest.fixture(scope="module")
def document():
    request = PlanRequest(system=build_device_steps(["h100"]), statistical=build_shared_runs())
    return build_device_plan(request, ExchangeRequest(), CostLimits()).document


def with_energies(document, plan_joules, frugal_joules, **frugal):
    """Return the document with a front of its plan and of one setting that takes less energy."""
    plan = replace(document.plan, joules=plan_joules)
    return replace(
        document, plan=plan, energy_front=(plan, replace(document.options[0], joules=frugal_joules, **frugal))
    )


def test_every_setting_gets_the_joules_of_its_steps(document):
    energy = StepEnergy(static_watts=100.0, joules_per_example=0.25)
    labelled = label_energy(document, energy)
    assert label_energy(document, None) is document
    for setting in (labelled.plan, labelled.runner_up, labelled.knee, *labelled.front, *labelled.options):
        if setting is not None:
            steps = setting.examples / setting.global_batch
            step = setting.workers * (100 * setting.step.seconds + 0.25 * setting.batch)
            assert setting.joules == pytest.approx(steps * step)
    assert labelled.plan.joules == add_joules(document.plan, energy).joules


def test_the_saved_energy_and_the_longer_time_are_told(document):
    several = with_energies(document, 12_345.0, 9876.0)
    (sentence,) = describe_energy(several, None)
    frugal = several.energy_front[-1]
    times = frugal.seconds.value / document.plan.seconds.value
    assert sentence.startswith("the plan takes 12.3 kJ to the target; ")
    assert f"{frugal.workers} worker" in sentence and f" x {frugal.batch} takes 20% less energy" in sentence
    assert sentence.endswith(f"and {times:.3g} times as long") and " on " not in sentence
    (sentence,) = describe_energy(with_energies(document, 100.0, 50.0, device="a10"), 1234.0)
    assert "to the target, assuming 1,234 W a worker; " in sentence
    assert f" x {frugal.batch} on a10 takes 50% less" in sentence


def test_less_than_a_hundredth_of_the_energy_is_not_worth_a_setting(document):
    (sentence,) = describe_energy(with_energies(document, 1000.0, 1000.0 * (1 - MIN_SAVED_SHARE) + 0.1), None)
    assert sentence.endswith("and no setting takes clearly less")
    (sentence,) = describe_energy(with_energies(document, 1000.0, 1000.0 * (1 - MIN_SAVED_SHARE) - 0.1), None)
    assert "1% less energy" in sentence


def test_nothing_is_said_without_a_plan_or_its_energy(document):
    known = with_energies(document, 100.0, 50.0)
    assert describe_energy(replace(known, plan=replace(known.plan, joules=None)), None) == []
    assert describe_energy(replace(known, plan=None), None) == []
    assert describe_energy(replace(known, energy_front=()), None) == []


def test_front_of_energy_leaves_out_settings_without_one(document):
    first, *others = document.options
    some = replace(document, options=(replace(first, joules=5.0), *others))
    added = add_energy_front(some)
    assert [option.joules for option in added.energy_front] == [5.0]
    assert add_energy_front(document).energy_front == () and add_energy_front(document).warnings == document.warnings


def test_column_of_energies_is_there_where_some_are_known(document):
    known = with_energies(document, 12_345.0, 50.0)
    assert format_energy_header(document) == "" and format_energy_header(known) == "      energy"
    assert format_energy(known.plan, known) == "     12.3 kJ" and format_energy(document.plan, known) == " " * 12
    assert format_energy(known.plan, document) == ""
