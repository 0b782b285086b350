"""Verdicts and their reasons at the limits between them, from speed-ups that are given."""

from dataclasses import replace

import numpy as np
import pytest

from equipoise.planning.exchange_choice.exchange_bounds import (
    MIN_EXPECTED_GAIN,
    MIN_GAIN,
    ExchangeBound,
    expect_ratio,
    next_interval,
    select_survivors,
    split_step,
)
from equipoise.planning.exchange_choice.exchange_estimates import (
    ExchangeEstimate,
    apply_exchange,
    estimate_interval,
    is_clear_gain,
)
from equipoise.planning.exchange_choice.exchange_verdicts import (
    MemoryFacts,
    beats_exact_sums,
    best_bounds,
    best_by_family,
    family_name,
    format_bound,
    format_gain,
    format_momentum,
    format_ratio,
    judge_bound,
    judge_estimate,
    judge_failure,
    judge_unknown,
)
from equipoise.planning.exchange_choice.ratio_table import RatioEstimate
from equipoise.planning.exchange_choice.table_verdicts import judge_speedup
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.parameter_servers.asynchronous_rate import mean_staleness
from tests.support.exchange_world import ExchangeWorld, fit_world
from tests.unit.planning.exchange_choice.test_ratio_table import build_ratio

JUST_BELOW_GAIN = float(np.nextafter(MIN_GAIN, 0))


@pytest.fixture(scope="module")
def world():
    fits, costs, _ = fit_world(ExchangeWorld(rate=1e9))
    return fits, costs


def build_estimate(fits, speedup, name="local:16", ratio=1.25, momentum=None):
    """Build the estimate of a way of exchange that halves the steps, with this speed-up."""
    exact = fits.options[0]
    told = RatioEstimate(ratio, np.full(len(exact.seconds_draws), ratio), 0.05, True, momentum)
    option = apply_exchange(exact, told, exact.step_seconds / 2, is_timed=True, name=name)
    value, low, high = speedup
    return ExchangeEstimate(
        exchange=name, option=option, ratio=told, speedup=IntervalEstimate(value=value, low=low, high=high)
    )


SPEEDUPS = [
    ((1.5, 1.2, 1.8), "slower", "50% sooner, but later than bf16"),
    ((1.5, 1.0, 1.8), "unknown", "50% sooner, but not clearly: more seeds would tell"),
    ((1.2, MIN_GAIN, 1.8), "slower", "20% sooner, but later than bf16"),
    ((MIN_GAIN, 1.01, 1.8), "unknown", "5% sooner, but not clearly: more seeds would tell"),
    ((JUST_BELOW_GAIN, 1.01, 1.4), "no gain", "at most 40% sooner"),
    ((MIN_GAIN, 0.9, 1.4), "unknown", "5% sooner, but not clearly: more seeds would tell"),
    ((0.8, 0.7, 0.99), "slower", "1.2 times as long as exact sums"),
]


@pytest.mark.parametrize(("speedup", "verdict", "end"), [*SPEEDUPS, ((0.9, 0.8, 1.0), "no gain", "at most 0% sooner")])
def test_verdict_beside_a_winner(world, speedup, verdict, end):
    fits, costs = world
    winner = build_estimate(fits, (2.0, 1.9, 2.1), "bf16")
    judged = judge_estimate(fits, costs, build_estimate(fits, speedup), winner, MemoryFacts())
    assert (judged.verdict, judged.measured) == (verdict, True)
    assert judged.why == f"local:16 needs 1.2 times the examples and takes 0.5 of the time a step: {end}"


@pytest.mark.parametrize(("speedup", "verdict", "end"), [*SPEEDUPS, ((0.9, 0.8, 1.0), "no gain", "not sooner")])
def test_verdict_by_tables_alone(speedup, verdict, end):
    interval = IntervalEstimate(value=speedup[0], low=speedup[1], high=speedup[2])
    is_clear = is_clear_gain(interval)
    assert judge_speedup(interval, False, is_clear, "bf16") == (verdict, end)
    assert judge_speedup(interval, True, is_clear, "bf16") == ("use", format_gain(speedup[0]))


def test_winner_is_used_and_without_one_a_clear_gain_is_not_later_than_anything(world):
    fits, costs = world
    estimate = build_estimate(fits, (2.0, 1.9, 2.1), momentum=0.5)
    used = judge_estimate(fits, costs, estimate, estimate, MemoryFacts())
    assert used.verdict == "use" and used.why.startswith("local:16 with momentum 0.5 needs 1.2 times the")
    assert used.why.endswith(": 2 times sooner") and (used.momentum, used.lr, used.peak_bytes) == (0.5, 0.05, None)
    alone = judge_estimate(fits, costs, estimate, None, MemoryFacts())
    assert alone.verdict == "unknown"
    option = estimate.option
    assert (used.nodes, used.workers, used.batch) == (option.nodes, option.workers, option.batch)
    assert used.step_seconds == option.step_seconds and used.speedup == estimate.speedup
    assert used.seconds == estimate.seconds and used.examples_ratio == IntervalEstimate(value=1.25, low=1.25, high=1.25)
    assert used.sent_bytes == costs.sent_bytes("local:16", option.workers)


def test_a_way_of_exchange_that_takes_all_of_the_memory_fits(world):
    fits, costs = world
    estimate = build_estimate(fits, (2.0, 1.9, 2.1))
    full, over = (MemoryFacts(peak_bytes={"local:16": peak}, limit_bytes=2e9) for peak in (2e9, 2.1e9))
    assert full.does_fit("local:16") and full.does_fit("bf16") and not over.does_fit("local:16")
    assert MemoryFacts(peak_bytes={"local:16": 1e99}).does_fit("local:16")
    assert judge_estimate(fits, costs, estimate, estimate, full).verdict == "use"
    judged = judge_estimate(fits, costs, estimate, estimate, over)
    assert judged.verdict == "does not fit" and judged.why.endswith("a step: needs 2.1 GB of 2 GB a worker")
    assert judged.peak_bytes == 2.1e9


@pytest.mark.parametrize(
    ("value", "low", "beats"), [(1.2, MIN_GAIN, True), (1.2, 1.049, False), (MIN_GAIN, 1.001, False)]
)
def test_exact_sums_are_beaten_by_a_clear_gain_alone(world, value, low, beats):
    assert beats_exact_sums(build_estimate(world[0], (value, low, 2.0))) == beats


def build_bound(name="local:16", max_speedup=1.5, prior=1.2, workers=4, lr=0.1):
    return ExchangeBound(
        exchange=name,
        nodes=2,
        workers=workers,
        batch=32,
        lr=lr,
        step_seconds=0.1,
        max_speedup=max_speedup,
        prior_speedup=prior,
    )


@pytest.mark.parametrize(
    ("name", "max_speedup", "verdict", "why"),
    [
        ("bf16", 1.5, "unknown", "bf16 was not tried: up to 50% sooner if it needed no more examples"),
        ("bf16", MIN_GAIN, "unknown", "bf16 was not tried: up to 5% sooner if it needed no more examples"),
        ("bf16", 1.04, "no gain", "bf16: no gain, at most 4% sooner even if it needed no more examples"),
        ("bf16", 1.0, "no gain", "bf16: no gain, not sooner even if it needed no more examples"),
        ("server", 2.5, "unknown", "server was not timed: up to 2.5 times sooner by its closed form"),
        ("server", 1.0, "no gain", "server: no gain, not sooner even if it needed no more examples"),
    ],
)
def test_verdict_without_runs(world, name, max_speedup, verdict, why):
    costs = world[1]
    bound = build_bound(name, max_speedup)
    judged = judge_bound(costs, bound, MemoryFacts())
    assert (judged.verdict, judged.why, judged.max_speedup) == (verdict, why, max_speedup)
    assert (judged.nodes, judged.workers, judged.batch, judged.step_seconds) == (2, 4, 32, 0.1)
    assert judged.sent_bytes == costs.sent_bytes(name, 4) and judged.speedup is None
    small = MemoryFacts(peak_bytes={name: 3e9}, limit_bytes=2e9)
    refused = judge_bound(costs, bound, small)
    assert (refused.verdict, refused.why) == ("does not fit", f"{name} needs 3 GB of 2 GB a worker")


@pytest.mark.parametrize(("share", "verdict"), [(1.01, "slower"), (0.99, "unknown")])
def test_runs_that_missed_the_target_are_slower_beyond_what_their_steps_could_gain(world, share, verdict):
    fits, costs = world
    most = judge_failure(fits, costs, build_ratio("bf16", reached=0)).max_speedup
    ratio = build_ratio("bf16", value=share * most / MIN_GAIN, reached=1, pairs=3, lr=0.2, momentum=0.0)
    judged = judge_failure(fits, costs, ratio)
    assert (judged.verdict, judged.lr, judged.momentum) == (verdict, 0.2, 0.0)
    assert f"in 1 of 3 runs, after {ratio.value:.2g} times the examples" in judged.why
    assert judged.why.endswith(f"less than {most:.2g} times")


def test_what_cannot_be_predicted_says_what_is_missing(world):
    fits, _ = world
    judged = judge_unknown(fits, "tensor:2", "its rows")
    assert (judged.verdict, judged.why) == ("unknown", "tensor:2 cannot be predicted without its rows")
    reference = fits.reference
    assert (judged.nodes, judged.workers, judged.batch) == (reference.nodes, reference.workers, reference.batch)


def test_words_for_numbers():
    assert [format_gain(value) for value in (1.0, 1.05, 1.994, 2.0, 12.3)] == [
        "0% sooner", "5% sooner", "99% sooner", "2 times sooner", "12 times sooner",
    ]  # fmt: skip
    assert [format_ratio(value) for value in (1.0, 1.04, 1.06, 2.0)] == [
        "as many", "as many", "1.1 times the", "2 times the",
    ]  # fmt: skip
    assert [format_momentum(value) for value in (None, 0.0, 0.9)] == ["", " with momentum 0", " with momentum 0.9"]
    assert [format_bound(value) for value in (0.9, 1.0, 1.04)] == [
        "no gain, not sooner", "no gain, not sooner", "no gain, at most 4% sooner",
    ]  # fmt: skip


def test_families_differ_in_more_than_h_or_s():
    names = ["local:4", "local:8/bf16", "diloco:4", "async:3/servers:2", "async:1", "bf16", "server", "mine"]
    assert [family_name(name) for name in names] == [
        "local/none", "local/bf16", "diloco/none", "async/servers:2", "async", "bf16", "server", "mine",
    ]  # fmt: skip


def test_best_of_a_family_is_the_first_of_a_ranking(world):
    first, second, other = (build_estimate(world[0], (2.0, 1.9, 2.1), name) for name in ("local:4", "local:8", "bf16"))
    assert best_by_family([first, second, other]) == [first, other]


def test_a_family_promises_what_the_usual_examples_let_it():
    usual, far = build_bound("local:4", 1.5, 1.4), build_bound("local:64", 2.0, 1.1)
    assert best_bounds([far, usual]) == [usual]
    assert best_bounds([replace(far, max_speedup=1.01), replace(usual, max_speedup=1.02)])[0].exchange == "local:4"
    low, high = build_bound("local:4", 1.01, 1.0), build_bound("local:64", 1.04, 0.5)
    assert best_bounds([low, high]) == [high]  # none may gain
    assert best_bounds([low, build_bound("local:2", MIN_GAIN, 0.1)])[0].exchange == "local:2"
    bounds = [build_bound("int8", 1.2), build_bound("bf16", 1.2), build_bound("topk:0.1", 1.9)]
    assert [bound.exchange for bound in best_bounds(bounds)] == ["topk:0.1", "bf16", "int8"]


def test_survivors_are_one_of_each_kind():
    bounds = [
        build_bound("local:4", 1.5, 1.4),
        build_bound("local:64", 2.0, 1.1),
        build_bound("diloco:4", 3.0, 2.5),
        build_bound("bf16", 1.6, 1.6),
        build_bound("int8", 1.7, 1.5),
        build_bound("async:3", 1.4, MIN_EXPECTED_GAIN),
        build_bound("server", JUST_BELOW_GAIN, 9.0),
    ]
    small = [build_bound("local:4", 1.4, 1.24), build_bound("bf16", 1.04, 1.04), build_bound("server", MIN_GAIN, 1.05)]
    assert [bound.exchange for bound in select_survivors(small)] == ["server"]  # its steps alone are timed
    assert [bound.exchange for bound in select_survivors(small, are_named=True)] == ["local:4", "server"]
    assert [bound.exchange for bound in select_survivors(bounds)] == ["bf16", "local:4", "async:3"]
    assert [bound.group for bound in bounds] == ["interval"] * 3 + ["compression"] * 2 + ["asynchronous", "exact"]
    assert [bound.needs_trials for bound in bounds] == [True] * 6 + [False]
    assert bounds[0].global_batch == 128 and [float(part[0]) for part in bounds[0].step_settings] == [2, 4, 32]


@pytest.mark.parametrize(
    ("name", "ratio"),
    [
        ("bf16", 1.0),
        ("int8", 1.1),
        ("powersgd:4", 1.2),
        ("topk:0.01", 1.6),
        ("local:1", 1.0),
        ("local:17", 1 + 16 * 0.75 / 64),
        ("local:17/int8", (1 + 16 * 0.75 / 64) * 1.1),
        ("async:2", 1 + mean_staleness(4, 2) / 15),
        ("server", 1.0),
    ],
)
def test_expected_ratios_grow_with_the_drift_of_workers(name, ratio):
    assert expect_ratio(name, 4) == pytest.approx(ratio)


def test_interval_of_draws_holds_its_value():
    draws = np.linspace(0, 1, 11)
    interval = estimate_interval(0.5, draws)
    assert (interval.value, interval.low, interval.high) == pytest.approx((0.5, 0.1, 0.9))
    assert estimate_interval(2.0, draws).high == 2.0 and estimate_interval(0.05, draws).low == 0.05


def test_fewer_examples_than_those_of_exact_sums_are_not_expected(world):
    exact = world[0].options[0]
    lucky = RatioEstimate(0.5, np.full(len(exact.seconds_draws), 0.5), None, False)
    option = apply_exchange(exact, lucky, exact.step_seconds, is_timed=True, name="bf16")
    assert option.examples == exact.examples and not option.measured
    spread = np.log(option.seconds_draws / exact.seconds_draws)
    assert abs(spread.mean()) < 0.01 and spread.std() == pytest.approx(0.03, rel=0.2)
    untimed = apply_exchange(exact, lucky, exact.step_seconds, is_timed=False, name="bf16")
    assert np.log(untimed.seconds_draws / exact.seconds_draws).std() > 1.5 * spread.std()
    fast = apply_exchange(exact, lucky, exact.component_seconds[0] / 2, is_timed=True, name="bf16")
    assert fast.component_seconds == (exact.component_seconds[0] / 2, 0)
    slow = apply_exchange(exact, lucky, exact.component_seconds[0] + 1.0, is_timed=True, name="bf16")
    assert slow.component_seconds == pytest.approx((exact.component_seconds[0], 1.0))


def test_next_interval_is_the_power_of_two_nearest_to_the_best_that_is_an_octave_from_all_others(world):
    costs = world[1]
    bound = build_bound("local:16")
    compute, exchange = split_step(bound, costs)

    def suggest(best, tried):
        return next_interval(bound, costs, 1 + best**2 * compute / exchange, tried)

    assert suggest(32, [16, 64]) == 32 and suggest(30, [16, 64]) == 32 and suggest(3, [16, 64]) == 4
    assert suggest(1000, [16, 64]) == 256 and suggest(1, [16, 64]) == 2
    assert suggest(16, [16]) in (4, 64)  # two values tell more the further they are apart
    assert compute > 0 and exchange > 0
