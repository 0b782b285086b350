"""Bounds, trials and verdicts of servers and of workers that do not wait, on simulated workloads and networks."""

from dataclasses import replace

import numpy as np
import pytest

from equipoise.planning.exchange_choice.exchange_bounds import bound_exchange, bound_exchanges, select_survivors
from equipoise.planning.exchange_choice.exchange_costs import SlowestLinks
from equipoise.planning.exchange_choice.exchange_estimates import build_exchange_entry
from equipoise.planning.exchange_choice.exchange_map import build_exchange_map, find_switches
from equipoise.planning.exchange_choice.exchange_verdicts import judge_exchanges
from equipoise.planning.exchange_choice.next_trial import MAX_EXCHANGE_TRIALS
from equipoise.planning.exchange_choice.ratio_table import fit_ratio_table
from equipoise.planning.exchange_choice.store_costs import StoreFacts, store_step_seconds
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.step_time_model import StepSettings
from tests.support.exchange_world import MOMENTUM, ExchangeWorld, build_runs, fit_world, try_exchanges

UNEQUAL = ExchangeWorld(rate=1e10, critical_staleness=20.0, relative_seconds=(0.25, 0.25, 0.25, 1.0))
DELAYED = replace(UNEQUAL, rate=5e9, delay=3e-3)
NAMES = ("async:1", "async:2", "async:3", "async:9")


@pytest.fixture(scope="module")
def unequal():
    return try_exchanges(UNEQUAL, names=("async:9",))


def test_bound_of_unequal_workers_is_that_of_their_mean_speed():
    fits, costs, _ = fit_world(UNEQUAL)
    bounds = {name: bound_exchange(fits, costs, name) for name in NAMES}
    assert {bound.workers for bound in bounds.values()} == {4}
    speedups = [bounds[name].max_speedup for name in NAMES]
    assert speedups == sorted(speedups) and speedups[-1] > 2 > speedups[0]
    equal = replace(costs, store=StoreFacts())
    assert bound_exchange(fits, equal, "async:9").max_speedup < 1.05
    for bound in bounds.values():
        truth = UNEQUAL.step_seconds(bound.exchange, 4, bound.batch)
        assert bound.step_seconds == pytest.approx(truth, rel=0.04)


def test_a_large_key_on_one_of_many_servers_is_counted():
    fits, costs, _ = fit_world(DELAYED)
    uneven = replace(costs, store=replace(costs.store, key_bytes=(9e6, 5e5, 5e5)))
    setting = bound_exchange(fits, costs, "server").step_settings
    for servers, share in (("", 0.9), ("/servers:2", 0.9), ("/servers:1", 1.0)):
        own, equal = (each.step_seconds(f"server{servers}", setting)[0] for each in (uneven, costs))
        assert own == pytest.approx(equal) if share == 1 else own > equal
    assert uneven.sent_bytes("server", 4) == pytest.approx((1 + 2 * 0.9) * 1e7)


def test_times_have_a_row_for_each_network_also_for_one():
    fits, costs, _ = fit_world(DELAYED)
    for name in ("server", "async:3"):
        steps = costs.step_seconds(name, fits.settings)
        for networks in (1, 3):
            links = SlowestLinks(*(np.full((networks, 1), value) for value in costs.network))
            assert costs.step_seconds(name, fits.settings, links).shape == (networks, len(steps))
            assert costs.step_seconds(name, fits.settings, links)[0] == pytest.approx(steps)
        ratios = fit_ratio_table(build_runs([]))
        timed = replace(costs, step_ratios={"server": 0.7})
        assert find_switches(fits, timed, ratios) is not None and build_exchange_map(fits, timed, ratios) is not None


def test_times_beyond_the_fit_multiply_those_of_equal_workers_alone():
    _, costs, _ = fit_world(DELAYED)
    settings = StepSettings(*(np.array([value]) for value in (4.0, 4.0, 64.0)))
    method, links = parse_exchange("server"), costs.fit.parameters
    for facts, factor in ((StoreFacts(), 2.0), (costs.store, 1.0)):
        once, twice = (
            store_step_seconds(method, settings, np.array([0.05]), links, facts, correction)
            for correction in (1.0, 2.0)
        )
        assert twice == pytest.approx(factor * once)


def test_more_servers_than_workers_of_a_setting_are_no_plan_there():
    fits, costs, _ = fit_world(DELAYED)
    steps = costs.step_seconds("server/servers:3", fits.settings)
    assert (np.isinf(steps) == (fits.settings.workers < 3)).all()
    assert bound_exchange(fits, costs, "server/servers:3").workers >= 3
    with_all = costs.step_seconds("server/servers:4", fits.settings)
    assert (np.isinf(with_all) == (fits.settings.workers < 4)).all() and np.isfinite(with_all).any()


def test_one_of_each_kind_is_tried_and_servers_need_no_trials():
    fits, costs, _ = fit_world(DELAYED)
    names = ("bf16", "local:8", "local:16", "server", "server/servers:2", *NAMES)
    bounds = bound_exchanges(fits, costs, names)
    survivors = select_survivors(bounds, are_named=True)
    assert sorted(bound.group for bound in survivors) == ["asynchronous", "compression", "exact", "interval"]
    assert survivors[-1].exchange == "bf16" and select_survivors(bounds) == survivors[:-1]  # it would gain 12 %
    assert [bound.exchange for bound in survivors if not bound.needs_trials] == ["server"]


def test_momentum_is_searched_with_the_staleness(unequal):
    *_, runs, trials = unequal
    own = [trial for trial in trials if trial.exchange]
    assert len(trials) <= MAX_EXCHANGE_TRIALS and len(set(trials)) == len(trials)
    assert {trial.momentum for trial in own[:4]} == {None, 0.0} and own[0].seed == 0
    ratio = next(ratio for ratio in fit_ratio_table(runs).ratios if ratio.key.exchange == "async:9")
    assert ratio.momentum == 0.0  # with the other one four times as much is lost
    assert {trial.momentum for trial in own if trial.seed > 0} == {0.0}
    exact_lr = max(runs.lr[(runs.exchange == "") & (runs.global_batch == own[0].global_batch)])
    assert own[0].lr == pytest.approx(exact_lr / (1 - MOMENTUM) / 2, rel=0.2)


def test_other_bounds_of_staleness_tell_the_critical_one(unequal):
    *_, runs, trials = unequal
    assert {trial.exchange for trial in trials if trial.exchange} == {"async:9", "async:1", "async:2"}
    critical = next(iter(fit_ratio_table(runs).critical_stalenesses.values()))
    assert critical.interval.low <= UNEQUAL.critical_staleness <= critical.interval.high


def test_unequal_workers_are_used_without_waits_where_that_pays(unequal):
    fits, costs, runs, _ = unequal
    choice = judge_exchanges(fits, costs, fit_ratio_table(runs), names=("async:9", "server"))
    verdicts = {verdict.exchange.partition(":")[0]: verdict for verdict in choice.verdicts}
    used = verdicts["async"]
    assert used.verdict == "use" and used.momentum == 0.0 and used.workers == 4
    assert f"{used.exchange} with momentum 0 needs" in used.why
    truth = fits.reference.seconds / UNEQUAL.true_seconds(used.exchange, 4, used.global_batch)
    assert used.speedup.low <= truth <= used.speedup.high and truth > 1.5
    assert verdicts["server"].verdict == "no gain" and "needed no more examples" in verdicts["server"].why
    entry = build_exchange_entry(fits, choice.winner, used.why)
    assert (entry.exchange, entry.momentum) == (used.exchange, 0.0)


def test_stale_gradients_that_lose_more_than_waiting_are_not_used():
    world = replace(UNEQUAL, critical_staleness=0.5)
    fits, costs, runs, trials = try_exchanges(world, names=("async:9",))
    choice = judge_exchanges(fits, costs, fit_ratio_table(runs), names=("async:9",))
    assert choice.winner is None and choice.verdicts[0].verdict == "slower"
    assert "async:1" not in {trial.exchange for trial in trials}  # no other bound could win


def test_servers_are_weighed_by_their_steps_alone():
    fits, costs, runs = fit_world(DELAYED)
    ratios = fit_ratio_table(runs)
    untimed = judge_exchanges(fits, costs, ratios, names=("server",)).verdicts[0]
    assert untimed.verdict == "unknown" and "was not timed" in untimed.why and untimed.speedup is None
    choice = judge_exchanges(fits, replace(costs, step_ratios={"server": 1.0}), ratios, names=("server",))
    used = choice.verdicts[0]
    assert used.verdict == "use" and used.examples_ratio.value == used.examples_ratio.high == 1
    assert used.speedup.value == pytest.approx(used.max_speedup) and used.lr == choice.winner.option.lr
    assert build_exchange_entry(fits, choice.winner, used.why).runs > 0
    slow = judge_exchanges(fits, replace(costs, step_ratios={"server": 3.0}), ratios, names=("server",))
    assert slow.winner is None and slow.verdicts[0].verdict in ("slower", "no gain")


def test_two_values_of_staleness_leave_the_critical_one_open():
    rows = [("", 0, 128, 0.1, seed, None, 1000.0 + seed, 1) for seed in range(3)]
    rows += [
        (f"async:{S}", 4, 128, 0.1, seed, 0.0, (1000.0 + seed) * (1 + S / 5), 1) for S in (1, 3) for seed in (0, 1)
    ]
    table = fit_ratio_table(build_runs(rows))
    assert not table.critical_stalenesses and "3 values of S below the number of workers; there are 2" in table.gaps[0]
    assert table.find_ratio("async:2", 4, 128) is None
    assert table.find_ratio("async:3", 4, 128).value == pytest.approx(1.6, rel=0.01)
    assert table.find_ratio("async:3", 2, 128) is None  # other workers, another staleness


@pytest.mark.parametrize("critical", [2.0, 10.0])
def test_the_critical_staleness_of_clean_runs_is_found(critical):
    taus = {1: 1.5, 2: 2.5, 3: 3.0}
    rows = [("", 0, 128, 0.1, seed, None, 1000.0 + seed, 1) for seed in range(3)]
    rows += [
        (f"async:{S}", 4, 128, 0.1, seed, 0.0, (1000.0 + seed) * (1 + tau / critical), 1)
        for S, tau in taus.items()
        for seed in range(3)
    ]
    fit = next(iter(fit_ratio_table(build_runs(rows)).critical_stalenesses.values()))
    assert fit.value == pytest.approx(critical, rel=0.05)
    assert fit.predict_ratio(9, 4).value == pytest.approx(1 + 3 / critical, rel=0.05)
    assert fit.missing_measurements(3, 4) is None and "runs with gradients 7" in fit.missing_measurements(9, 8)
