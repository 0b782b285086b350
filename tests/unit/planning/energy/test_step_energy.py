import pandas as pd
import pytest

from equipoise.planning.energy.step_energy import assume_power, fit_step_energy, require_one_energy_source
from tests.support.errors import raises_code

STATIC_WATTS, JOULES_PER_EXAMPLE = 70.0, 0.5


def build_steps(**columns):
    rows = [(1, workers, batch, 0.01 + 0.001 * batch) for workers in (1, 2) for batch in (8, 32)]
    steps = pd.DataFrame(rows, columns=["nodes", "workers", "batch", "seconds"])
    joules = steps.workers * (STATIC_WATTS * steps.seconds + JOULES_PER_EXAMPLE * steps.batch)
    return steps.assign(**{"joules": joules} | columns)


def test_static_power_and_energy_of_an_example_are_found():
    energy = fit_step_energy(build_steps())
    assert energy.static_watts == pytest.approx(STATIC_WATTS)
    assert energy.joules_per_example == pytest.approx(JOULES_PER_EXAMPLE)
    expected = 4 * (STATIC_WATTS * 0.03 + JOULES_PER_EXAMPLE * 16)
    assert energy.estimate_joules(1, 4, 16, 0.03) == pytest.approx(expected)


def test_a_measured_setting_has_the_mean_of_its_measured_joules():
    steps = build_steps()
    twice = pd.concat([steps, steps.assign(joules=3 * steps.joules)])
    energy = fit_step_energy(twice)
    assert energy.estimate_joules(1, 1, 8, 99.0) == pytest.approx(2 * steps.joules[0])


def test_rows_without_joules_and_of_other_exchanges_do_not_count():
    steps = build_steps()
    others = steps.assign(joules=1e6, exchange="local:8")
    rows = pd.concat([steps.assign(exchange=""), others, steps.assign(joules=float("nan"), exchange="")])
    assert fit_step_energy(rows.reset_index(drop=True)).static_watts == pytest.approx(STATIC_WATTS)


def test_no_part_of_the_energy_is_negative():
    steps = build_steps().assign(joules=lambda rows: rows.workers * rows.batch**2 * 1.0)
    energy = fit_step_energy(steps)
    assert energy.static_watts >= 0 and energy.joules_per_example > 0


@pytest.mark.parametrize("steps", [None, build_steps().drop(columns="joules"), build_steps(joules=float("nan"))])
def test_nothing_is_known_without_joules(steps):
    assert fit_step_energy(steps) is None and assume_power(None) is None
    require_one_energy_source(steps, 250.0)


def test_an_assumed_power_is_drawn_all_the_time():
    assert assume_power(250.0).estimate_joules(2, 8, 32, 0.5) == pytest.approx(250 * 8 * 0.5)


def test_an_assumed_power_beside_measured_joules_is_refused():
    with raises_code("option-conflict"):
        require_one_energy_source(build_steps(), 250.0)
