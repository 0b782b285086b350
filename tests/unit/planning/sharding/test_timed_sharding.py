"""Which sharding a sweep times, and at which setting, before it chooses one."""

from dataclasses import replace

import pytest

from equipoise.planning.sharding.sharding_verdicts import add_sharding_verdicts, estimate_shardings
from equipoise.planning.sharding.timed_sharding import choose_timed_sharding
from tests.support.exchange_world import fit_world
from tests.unit.jobs.exchanges.test_plan_exchanges import FAST, build_request
from tests.unit.planning.sharding.test_sharding_verdicts import build_limit, plan


def estimate(limit, step_ratios=None):
    fits, costs, runs = fit_world(FAST)
    own = build_limit(limit)
    exact = build_request(FAST, runs)
    exact = replace(exact, system=own.fill_peaks(exact.system), memory_bytes=limit)
    costs = replace(costs, step_ratios=step_ratios or {})
    return estimate_shardings(exact, fits, costs, own, ("optimizer", "full")), exact, fits, costs, own


def test_the_sharding_to_use_is_timed_at_its_own_setting():
    estimates, exact, *_ = estimate(2e9)
    option = plan(2e9)[0].plan
    assert choose_timed_sharding(estimates, exact.system) == ("full", option.workers, option.batch)


def test_it_is_timed_at_the_largest_batch_of_whole_models_up_to_its_own():
    estimates, exact, *_ = estimate(2e9)
    name, workers, batch = choose_timed_sharding(estimates, exact.system)
    steps = exact.system[(exact.system.batch < batch) | (exact.system.workers != workers)]
    largest = steps[steps.workers == workers].batch.max()
    assert choose_timed_sharding(estimates, steps) == (name, workers, largest)
    assert choose_timed_sharding(estimates, steps[steps.workers != workers]) is None


@pytest.mark.parametrize("limit", [20e9, 1e8])
def test_nothing_is_timed_where_whole_models_fit_or_nothing_does(limit):
    estimates, exact, *_ = estimate(limit)
    assert choose_timed_sharding(estimates, exact.system) is None


def test_timed_steps_decide_and_the_reason_no_longer_names_the_closed_form():
    _, exact, fits, costs, limit = estimate(20e9, {"full": 3.0})
    document, by_form = plan(20e9)
    timed = add_sharding_verdicts(replace(document, exchanges=()), exact, fits, costs, limit)
    by_time = {verdict.exchange: verdict for verdict in timed.exchanges}
    assert "by its closed form" in by_form["full"].why and "by its closed form" not in by_time["full"].why
    assert by_time["full"].speedup.value < by_form["full"].speedup.value
    assert by_time["optimizer"] == by_form["optimizer"]
