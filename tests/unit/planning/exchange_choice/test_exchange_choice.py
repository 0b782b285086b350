"""Bounds, trials, verdicts and the map of ways of exchange on simulated workloads and networks."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.build_document import PlanRequest
from equipoise.planning.exchange_choice.exact_fits import fit_exact_sums
from equipoise.planning.exchange_choice.exchange_bounds import (
    MIN_GAIN,
    bound_exchange,
    bound_exchanges,
    next_interval,
    select_survivors,
)
from equipoise.planning.exchange_choice.exchange_estimates import build_exchange_entry
from equipoise.planning.exchange_choice.exchange_map import (
    answer_networks,
    build_exchange_map,
    find_switches,
    list_map_options,
)
from equipoise.planning.exchange_choice.exchange_verdicts import MemoryFacts, judge_exchanges
from equipoise.planning.exchange_choice.next_trial import (
    MAX_EXCHANGE_TRIALS,
    limit_trial_examples,
    suggest_exchange_trial,
)
from equipoise.planning.exchange_choice.ratio_table import fit_ratio_table
from tests.support.exchange_world import BATCHES, ExchangeWorld, build_runs, fit_world, try_exchanges

SLOW = ExchangeWorld(rate=1e9)
FAST = ExchangeWorld(rate=2e11, delay=2e-6)
LOCALS = tuple(f"local:{2**power}" for power in range(9))


@pytest.fixture(scope="module")
def slow():
    return try_exchanges(SLOW)


def judge(fits, costs, runs, **options):
    choice = judge_exchanges(fits, costs, fit_ratio_table(runs), **options)
    return choice, {verdict.exchange.partition(":")[0]: verdict for verdict in choice.verdicts}


def test_bound_is_the_best_setting_if_no_more_examples_are_needed():
    fits, costs, _ = fit_world(SLOW)
    bound = bound_exchange(fits, costs, "local:16")
    seconds = {
        (option.workers, option.batch): SLOW.exact_examples(option.global_batch)
        / option.global_batch
        * SLOW.step_seconds("local:16", option.workers, option.batch)
        for option in fits.options
    }
    assert seconds[bound.workers, bound.batch] <= 1.1 * min(seconds.values())
    truth = fits.reference.seconds / seconds[bound.workers, bound.batch]
    assert bound.max_speedup == pytest.approx(truth, rel=0.25)


def test_fast_network_gets_no_trial_and_keeps_exact_sums():
    fits, costs, runs, trials = try_exchanges(FAST)
    assert trials == []
    assert max(bound.max_speedup for bound in bound_exchanges(fits, costs)) < MIN_GAIN
    choice, verdicts = judge(fits, costs, runs)
    assert choice.winner is None
    assert {verdict.verdict for verdict in choice.verdicts} == {"no gain"}
    assert "no gain, " in verdicts["bf16"].why and verdicts["bf16"].max_speedup < MIN_GAIN
    assert find_switches(fits, costs, fit_ratio_table(runs)) is None


def test_slow_network_gets_few_trials_and_the_exchange_that_is_truly_the_best(slow):
    fits, costs, runs, trials = slow
    assert 8 <= len(trials) <= MAX_EXCHANGE_TRIALS and len(set(trials)) == len(trials)
    choice, verdicts = judge(fits, costs, runs)
    truths = {
        name: min(SLOW.true_seconds(name, option.workers, option.global_batch) for option in fits.options)
        for name in (*LOCALS, "powersgd:4", "bf16", "int8", "topk:0.01")
    }
    used = verdicts["local"]
    assert used.verdict == "use" and used.exchange == choice.winner.exchange
    assert truths[used.exchange] <= 1.15 * min(truths.values())
    assert used.speedup.low > 1 and used.seconds.includes(truths[used.exchange])
    assert used.examples_ratio.includes(SLOW.ratio(used.exchange, used.workers))
    assert verdicts["powersgd"].verdict == "slower" and used.exchange in verdicts["powersgd"].why
    assert verdicts["bf16"].verdict == "unknown" and "not tried" in verdicts["bf16"].why
    assert verdicts["topk"].verdict == "no gain" and verdicts["topk"].speedup is None
    entry = build_exchange_entry(fits, choice.winner, used.why)
    assert (entry.exchange, entry.workers, entry.batch) == (used.exchange, used.workers, used.batch)
    assert entry.seconds.value == used.seconds.value < fits.plan.seconds


def test_trials_are_paired_and_go_on_from_what_is_known(slow):
    fits, costs, runs, trials = slow
    survivors = select_survivors(bound_exchanges(fits, costs))
    assert [bound.is_sync for bound in survivors] == [True, False]
    first = next(trial for trial in trials if trial.exchange == survivors[0].exchange)
    assert first == trials[0] and first.lr == survivors[0].lr and first.seed == 0
    for trial in trials:
        exact = runs[(runs.exchange == "") & (runs.global_batch == trial.global_batch)]
        assert trial.seed in set(exact.seed)
    suggestion = suggest_exchange_trial(costs, survivors, runs, num_trials=0, unavailable=trials)
    assert suggestion not in trials
    assert suggest_exchange_trial(costs, survivors, runs, num_trials=MAX_EXCHANGE_TRIALS) is None


def test_diloco_begins_two_octaves_below_the_rate_of_local_steps():
    trials = try_exchanges(SLOW, names=LOCALS)[-1]
    lrs = {name: [trial.lr for trial in trials if trial.exchange.startswith(name)] for name in ("local", "diloco")}
    local_lr = max(lrs["local"], key=lrs["local"].count)  # further seeds and intervals have the best one
    assert lrs["diloco"] == pytest.approx([local_lr / 4] * 2, rel=1e-4)


@pytest.mark.slow
def test_exact_runs_that_pairs_need_are_suggested_too():
    fits, costs, runs = fit_world(SLOW)
    runs, survivors, trials = runs[runs.seed == 0], select_survivors(bound_exchanges(fits, costs)), []
    while trial := suggest_exchange_trial(costs, survivors, runs, num_trials=len(trials)):
        trials.append(trial)
        runs = pd.concat([runs, pd.DataFrame([SLOW.run(trial)], columns=runs.columns)], ignore_index=True)
    exact = [trial for trial in trials if not trial.exchange]
    assert exact and all(trial.seed > 0 for trial in exact) and len(trials) == MAX_EXCHANGE_TRIALS


def test_hopeless_exchange_gets_no_seeds():
    fits, costs, runs, trials = try_exchanges(replace(SLOW, diverging=LOCALS))
    tried = [trial for trial in trials if trial.exchange.startswith("local")]
    assert len(tried) <= 4 and {trial.seed for trial in tried} == {0}
    _, verdicts = judge(fits, costs, runs)
    assert verdicts["local"].verdict in ("slower", "unknown") and "reached the target in 0 of" in verdicts["local"].why
    assert verdicts["powersgd"].verdict == "use"


@pytest.mark.slow
def test_exchange_that_needs_many_examples_is_slower():
    fits, costs, runs, _ = try_exchanges(replace(SLOW, critical_interval=2.0))
    _, verdicts = judge(fits, costs, runs)
    assert verdicts["local"].verdict == "slower" and verdicts["local"].speedup.high < 1


def test_exchange_that_does_not_fit_or_cannot_be_predicted_says_so(slow):
    fits, costs, runs, _ = slow
    winner = judge(fits, costs, runs)[0].winner.exchange
    memory = MemoryFacts(peak_bytes={winner: 3e9}, limit_bytes=2e9)
    choice, verdicts = judge(fits, costs, runs, memory=memory)
    assert verdicts["local"].verdict == "does not fit" and "needs 3 GB of 2 GB a worker" in verdicts["local"].why
    assert choice.winner.exchange == "powersgd:4" and verdicts["powersgd"].verdict == "use"
    _, verdicts = judge(fits, replace(costs, matrices=None), runs)
    assert verdicts["powersgd"].verdict == "unknown" and "matrices" in verdicts["powersgd"].why


def test_prune_limit_leaves_room_for_unlucky_seeds():
    fits, costs, _ = fit_world(SLOW)
    bound = bound_exchange(fits, costs, "local:32")
    assert limit_trial_examples(bound, 1000.0) > 1000.0 * bound.max_speedup


def test_next_intervals_span_what_a_critical_interval_needs():
    fits, costs, _ = fit_world(SLOW)
    bound = bound_exchange(fits, costs, "local:16")
    for critical_steps in (2.0, 50.0, 1e4):
        first = next_interval(bound, costs, critical_steps, [16])
        second = next_interval(bound, costs, critical_steps, [16, first])
        tried = {16, first, second}
        assert len(tried) == 3 and max(tried) >= 4 * min(tried) and min(tried) >= 2


def test_timed_steps_replace_predicted_ones(slow):
    fits, costs, runs, _ = slow
    timed = replace(costs, step_ratios={"local:32": 2.0})
    assert timed.step_seconds("local:32", fits.settings) == pytest.approx(
        2 * costs.step_seconds("local:32", fits.settings)
    )
    assert timed.step_seconds("bf16", fits.settings) == pytest.approx(costs.step_seconds("bf16", fits.settings))
    slower, faster = (judge(fits, each, runs)[1]["local"].speedup.value for each in (timed, costs))
    assert slower < faster


def test_map_has_exact_sums_on_fast_networks_and_others_on_slow_ones(slow):
    fits, costs, runs, _ = slow
    table = fit_ratio_table(runs)
    exchange_map = build_exchange_map(fits, costs, table)
    assert exchange_map.options[0] == "" and exchange_map.best[0][-1] == 0
    best, speedup = np.array(exchange_map.best), np.array(exchange_map.speedup)
    assert ((speedup >= MIN_GAIN) == (best > 0)).all() and (speedup[best == 0] == 1).all()
    rate = find_switches(fits, costs, table).bits_per_second
    assert rate > SLOW.rate
    options = list_map_options(fits, costs, table)
    around = np.array([rate / 1.02, rate * 1.02])
    below, above = answer_networks(fits, costs, options, np.full(2, costs.network.delay_seconds), around).best > 0
    assert below and not above


def test_switch_is_found_at_delays_far_above_those_of_a_network_of_exact_sums():
    fits, costs, runs = fit_world(FAST)
    trials = [("local:8", 4, batch, 0.05 * np.sqrt(batch / 64), seed, None) for batch in BATCHES for seed in range(3)]
    table = fit_ratio_table(pd.concat([runs, build_runs(map(FAST.run, trials))], ignore_index=True))
    delay = find_switches(fits, costs, table).delay_seconds
    assert delay > 100 * FAST.delay
    options = list_map_options(fits, costs, table)
    around = np.array([delay / 1.02, delay * 1.02])
    below, above = answer_networks(fits, costs, options, around, np.full(2, costs.network.bits_per_second)).best > 0
    assert above and not below


def count_rounds(name):
    """Return the exchanges per step of a way of exchange."""
    return 1 / int(name.partition(":")[2]) if name.startswith("local") else 1.0


def test_more_delay_never_favours_more_rounds_and_more_rate_never_fewer_bytes(slow):
    fits, costs, runs, _ = slow
    options = list_map_options(fits, costs, fit_ratio_table(runs))
    options = [option for option in options if option.exchange.startswith("local")]
    names = ["", *(option.exchange for option in options)]
    values = np.geomspace(1e-5, 1.0, 60)
    single = replace(fits, options=(choose_setting(fits),), alone=())
    options = [
        option._replace(factors=option.factors[[fits.options.index(choose_setting(fits))]]) for option in options
    ]
    for rate in (1e8, 1e9, 1e10):
        answers = answer_networks(single, costs, options, values, np.full(len(values), rate)).best.astype(int)
        assert (np.diff([count_rounds(names[index]) for index in answers]) <= 0).all()
    for delay in (0.0, 1e-4, 1e-3):
        rates = np.geomspace(1e7, 1e12, 60)
        answers = answer_networks(single, costs, options, np.full(len(rates), delay), rates).best.astype(int)
        sent = [costs.sent_bytes(names[index], 4) for index in answers]
        assert (np.diff(sent) >= 0).all()


def choose_setting(fits):
    """Return the setting of most workers with the largest batch."""
    return max(fits.options, key=lambda option: (option.workers, option.batch))


def test_another_option_never_makes_the_answer_worse(slow):
    fits, costs, runs, _ = slow
    table = fit_ratio_table(runs)
    options = list_map_options(fits, costs, table)
    rates, delays = np.geomspace(1e7, 1e11, 20), np.full(20, SLOW.delay)
    for count in range(1, len(options)):
        fewer, more = (answer_networks(fits, costs, options[:size], delays, rates) for size in (count, count + 1))
        assert (more.exact_seconds / more.speedup <= fewer.exact_seconds / fewer.speedup).all()


def test_tables_without_several_workers_have_nothing_to_compare():
    steps = SLOW.measure_steps()
    request = PlanRequest(system=steps[steps.workers == 1], statistical=SLOW.measure_exact_runs())
    assert fit_exact_sums(request) is None
    assert fit_exact_sums(PlanRequest(system=steps)) is None
