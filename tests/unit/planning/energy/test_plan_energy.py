"""Plans whose workers draw a known power: the energy of each setting, the front, and the sentence about it."""

from dataclasses import replace

import pandas as pd
import pytest

from equipoise.planning.build_document import PlanRequest
from equipoise.planning.devices.device_plan import build_device_plan
from equipoise.planning.devices.device_prices import CostLimits
from equipoise.planning.document import PlanDocument
from equipoise.planning.energy.plan_energy import add_joules
from equipoise.planning.energy.step_energy import fit_step_energy
from equipoise.planning.exchanges.exchange_plan import ExchangeRequest
from tests.support.device_tables import build_device_steps, build_shared_runs
from tests.support.errors import raises_code

IDLE_WATTS = {"a10": 40.0, "h100": 400.0}


def plan_with_energy(steps, watts=None):
    request = PlanRequest(system=steps, statistical=build_shared_runs())
    document = build_device_plan(request, ExchangeRequest(), CostLimits(watts=watts)).document
    assert PlanDocument.from_json(document.to_json()) == document
    return document


def draw_idle_power(steps):
    """Return step times with the joules of workers that draw a power of their device all the time."""
    return steps.assign(joules=steps.workers * steps.seconds * steps.device.map(IDLE_WATTS))


def test_settings_have_the_energy_of_their_run_and_the_front_is_sorted():
    document = plan_with_energy(draw_idle_power(build_device_steps(["h100"])))
    for option in document.options:
        assert option.joules == pytest.approx(option.worker_seconds * IDLE_WATTS["h100"], rel=0.05)
    times, energies = (
        [*values] for values in zip(*((o.seconds.value, o.joules) for o in document.energy_front), strict=True)
    )
    assert times == sorted(times) and energies == sorted(energies, reverse=True)
    assert energies[-1] == min(option.joules for option in document.options)
    assert document.plan.joules == pytest.approx(document.plan.worker_seconds * IDLE_WATTS["h100"], rel=0.05)


def test_plan_with_another_exchange_has_the_energy_of_its_own_steps():
    steps = draw_idle_power(build_device_steps(["h100"]))
    plan = plan_with_energy(steps).plan
    shorter = replace(plan.with_exchange("local:16"), step=replace(plan.step, seconds=plan.step.seconds / 4))
    assert add_joules(shorter, fit_step_energy(steps)).joules == pytest.approx(plan.joules / 4, rel=0.05)


def test_a_slower_device_that_draws_less_is_the_most_frugal():
    document = plan_with_energy(draw_idle_power(build_device_steps()))
    assert (document.plan.device, document.energy_front[-1].device) == ("h100", "a10")
    [sentence] = [text for text in document.warnings if "to the target" in text and "energy" in text]
    assert " on a10 takes " in sentence and "times as long" in sentence


def test_with_an_assumed_power_energy_is_worker_seconds():
    document = plan_with_energy(build_device_steps(["h100"]), watts=250.0)
    for option in document.options:
        assert option.joules == pytest.approx(250 * option.worker_seconds)
    assert [text for text in document.warnings if "assuming 250 W a worker" in text]


def test_without_energy_nothing_is_said_of_it():
    document = plan_with_energy(build_device_steps(["h100"]))
    assert not document.energy_front and document.plan.joules is None
    assert not [text for text in document.warnings if "energy" in text or " J" in text]


def test_plan_that_is_the_most_frugal_says_so():
    steps = build_device_steps(["h100"], workers=(1,))
    document = plan_with_energy(steps, watts=1.0)
    assert len(document.energy_front) == 1 and "no setting takes clearly less" in document.warnings[-1]


def test_an_assumed_power_beside_measured_joules_is_refused():
    with raises_code("option-conflict"):
        plan_with_energy(draw_idle_power(build_device_steps(["h100"])), watts=100.0)
    plan_with_energy(build_device_steps(["h100"]).assign(joules=pd.NA), watts=100.0)
