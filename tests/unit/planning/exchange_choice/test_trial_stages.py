"""Stages of the search for a way of exchange, one by one, from runs that are given."""

import math
from dataclasses import replace

import pandas as pd
import pytest

from equipoise.planning.exchange_choice.exchange_bounds import INTERVALS, MIN_GAIN
from equipoise.planning.exchange_choice.next_trial import (
    guess_critical_steps,
    limit_trial_examples,
    list_excesses,
    list_interval_names,
    may_still_win,
    replace_number,
    suggest_intervals,
    suggest_lrs,
    suggest_seed_pairs,
    suggest_stalenesses,
)
from equipoise.planning.exchange_choice.trial_state import (
    ExchangeTrial,
    TrialState,
    list_known_trials,
    list_step_rates,
)
from equipoise.planning.parameter_servers.asynchronous_rate import mean_staleness
from tests.support.exchange_world import RUN_COLUMNS
from tests.unit.planning.exchange_choice.test_verdict_sentences import build_bound

BATCH = 128  # of four workers with 32 examples each
EXACT = [("", 1, BATCH, 0.5, seed, 1000.0, 1) for seed in range(3)]


def build_state(*rows, momentum=0.0, exact=EXACT):
    """Build what is known from runs; one with an eighth value has that momentum."""
    table = pd.DataFrame([row[:7] for row in (*exact, *rows)], columns=RUN_COLUMNS)
    momenta = [row[7] if len(row) > 7 else None for row in (*exact, *rows)]
    if any(value is not None for value in momenta):
        table = table.assign(momentum=pd.Series(momenta, dtype=float))
    return TrialState(costs=None, runs=table, momentum=momentum)


def rates(trials):
    return [(trial.lr, trial.momentum) for trial in trials]


def own_runs(name, *lrs_and_examples, seed=0, momentum=None):
    return [(name, 4, BATCH, lr, seed, examples, 1, momentum) for lr, examples in lrs_and_examples]


def test_rates_begin_at_that_of_exact_sums_and_half_of_it():
    trials = suggest_lrs(build_state(), build_bound("local:8"))
    assert rates(trials) == [(0.5, None), (0.25, None)]
    assert {(trial.exchange, trial.workers, trial.global_batch, trial.seed) for trial in trials} == {
        ("local:8", 4, BATCH, 0)
    }
    unknown = build_state(exact=[])
    assert rates(suggest_lrs(unknown, build_bound("bf16", lr=0.25))) == [(0.25, None), (0.125, None)]
    assert suggest_lrs(unknown, build_bound("bf16", lr=None)) == []


@pytest.mark.parametrize(("examples", "third"), [((900.0, 1200.0), 1.0), ((1200.0, 900.0), 0.125)])
def test_a_third_rate_lies_beyond_the_better_one(examples, third):
    rows = own_runs("bf16", (0.5, examples[0]), (0.25, examples[1]))
    bound = build_bound("bf16")
    assert rates(suggest_lrs(build_state(*rows), bound)) == [(0.5, None), (0.25, None), (third, None)]
    one = build_state(*rows[:1])
    assert len(suggest_lrs(one, bound)) == 2
    three = build_state(*rows, *own_runs("bf16", (third, 5000.0)))
    assert len(suggest_lrs(three, bound)) == 2


def test_workers_that_do_not_wait_try_to_do_without_momentum():
    bound = build_bound("async:3")
    first = suggest_lrs(build_state(momentum=0.75), bound)
    assert rates(first) == [(1.0, 0.0), (0.5, None), (0.5, 0.0), (0.25, None)]
    assert rates(suggest_lrs(build_state(), bound)) == [(0.5, None), (0.25, None)]
    rows = own_runs("async:3", (1.0, 800.0), (0.5, 900.0), momentum=0.0) + own_runs(
        "async:3", (0.5, 2000.0), (0.25, 2000.0)
    )
    assert rates(suggest_lrs(build_state(*rows, momentum=0.75), bound))[4:] == [(2.0, 0.0)]


def test_seeds_come_in_pairs_with_exact_runs_at_the_best_rates():
    state = build_state(*own_runs("bf16", (0.5, 900.0), (0.25, 1200.0)))
    trials = suggest_seed_pairs(state, build_bound("bf16"))
    assert [(trial.exchange, trial.lr, trial.seed) for trial in trials] == [
        (name, 0.5, seed) for seed in range(3) for name in ("", "bf16")
    ]
    assert len(suggest_seed_pairs(state, build_bound("bf16"), num_seeds=2)) == 4
    assert suggest_seed_pairs(build_state(), build_bound("bf16")) == []  # no rate of its own yet
    assert suggest_seed_pairs(build_state(*own_runs("bf16", (0.5, 900.0)), exact=[]), build_bound("bf16")) == []
    missed = build_state(("bf16", 4, BATCH, 0.5, 0, 3000.0, 0))
    assert suggest_seed_pairs(missed, build_bound("bf16")) == []


def test_further_intervals_take_the_rate_of_the_first_and_diloco_a_quarter_of_it():
    state, bound = build_state(*own_runs("local:8", (0.5, 900.0))), build_bound("local:8")
    assert [trial.lr for trial in suggest_seed_pairs(state, bound, "local:32", 1)] == [0.5, 0.5]
    assert [trial.lr for trial in suggest_seed_pairs(state, bound, "diloco:8", 1)] == [0.5, 0.125]
    own = build_state(*own_runs("local:8", (0.5, 900.0)), *own_runs("diloco:8", (0.25, 900.0)))
    assert [trial.lr for trial in suggest_seed_pairs(own, bound, "diloco:8", 1)] == [0.5, 0.25]


def test_further_stalenesses_are_the_least_the_middle_and_the_largest():
    state, bound = build_state(*own_runs("async:9", (0.5, 900.0))), build_bound("async:9")
    trials = suggest_stalenesses(state, bound)
    assert [trial.exchange for trial in trials if trial.exchange] == [
        "async:1", "async:2", "async:1", "async:1", "async:2", "async:2",
    ]  # fmt: skip
    assert suggest_intervals(state, bound) == trials and suggest_intervals(state, build_bound("bf16")) == []
    assert suggest_stalenesses(state, build_bound("async:9", workers=3)) == []
    assert suggest_stalenesses(state, build_bound("async:0")) == []


def test_what_differs_in_h_or_s_alone():
    assert list_excesses(build_bound("bf16")) == {}
    local = list_excesses(build_bound("local:3/int8"))
    assert local == {f"local:{interval}/int8": interval - 1 for interval in (*INTERVALS, 3)}
    stale = list_excesses(build_bound("async:9/servers:2"))
    assert stale == {f"async:{bound}/servers:2": mean_staleness(4, bound) for bound in (1, 2, 3, 9)}
    assert replace_number("local:4", 16) == "local:16" and replace_number("async:4/servers:2", 1) == "async:1/servers:2"


def test_intervals_with_runs_belong_to_a_survivor_of_the_same_kind():
    names = ["local:2", "diloco:4", "local:8/bf16", "local:16"]
    rows = [row for name in names for row in own_runs(name, (0.5, 900.0))]
    others = [("local:32", 2, BATCH, 0.5, 0, 900.0, 1), ("local:64", 4, 64, 0.5, 0, 900.0, 1)]
    state = build_state(*rows, *others)
    assert list_interval_names(state, build_bound("local:8")) == ["local:8", "local:2", "local:16"]
    assert list_interval_names(state, build_bound("local:2")) == ["local:2", "local:16"]


def test_critical_interval_is_guessed_from_each_ratio():
    state = build_state(*own_runs("local:9", (0.5, 1500.0)), *own_runs("local:33", (0.5, 3000.0)))
    assert guess_critical_steps(state, build_bound("local:9")) == pytest.approx(math.sqrt(8 / 0.5 * 32 / 2.0))
    lucky = build_state(*own_runs("local:9", (0.5, 900.0)))
    assert guess_critical_steps(lucky, build_bound("local:9")) == pytest.approx(8 / 0.02)
    assert guess_critical_steps(build_state(), build_bound("local:9")) == 1


def test_a_way_is_given_up_once_it_cannot_gain():
    bound = build_bound("bf16", max_speedup=1.5)
    assert may_still_win(build_state(), bound, [bound])
    searched = [(0.5, 1200.0), (0.25, 1300.0), (1.0, 1400.0)]
    rows = [row for seed in range(3) for row in own_runs("bf16", *searched, seed=seed)]
    assert may_still_win(build_state(*rows), bound, [bound])
    slow = [(lr, 3 * examples) for lr, examples in searched]
    rows = [row for seed in range(3) for row in own_runs("bf16", *slow, seed=seed)]
    assert not may_still_win(build_state(*rows), bound, [bound])
    assert may_still_win(build_state(*rows), replace(bound, max_speedup=9.0), [bound])
    assert may_still_win(build_state(*rows[:2]), bound, [bound])  # a third rate may be better


def test_trials_are_pruned_far_beyond_where_they_stop_to_gain():
    assert limit_trial_examples(build_bound(max_speedup=2.1), 1000.0) == pytest.approx(1.5 * 2.1 * 1000 / MIN_GAIN)


def test_exact_runs_are_known_on_any_number_of_workers():
    trial = ExchangeTrial("", 8, BATCH, 0.5, 7)
    known = list_known_trials(build_state(*own_runs("bf16", (0.5, 900.0))).runs, [trial])
    assert ExchangeTrial("", 0, BATCH, 0.5, 7) in known and ExchangeTrial("", 0, BATCH, 0.5, 0) in known
    assert ExchangeTrial("bf16", 4, BATCH, 0.5, 0) in known and len(known) == 5
    runs = build_state(*own_runs("async:2", (0.5, 900.0), momentum=0.0)).runs
    assert list_step_rates(runs) == {(0.5, None), (0.5, 0.0)}
