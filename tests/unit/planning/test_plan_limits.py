"""Options at the limits: which are kept, which is first, and what the sentences about them say."""

from dataclasses import replace

import numpy as np
import pytest

from equipoise.planning.plan import (
    BOTTLENECK_TEXT,
    MIN_PLAN_RUNS,
    PlanOption,
    collect_warnings,
    compare_with_runner_up,
    explain_option,
    find_bottleneck,
    find_runner_up,
    format_batches,
    probability_faster,
    put_measured_first,
    rank_options,
)
from tests.support.plan_options import CRITICAL_BATCH, build_curve, build_step_fit, enumerate_all_options


def build_option(seconds, workers=2, batch=32, nodes=1, **changes):
    """Build an option that takes these seconds in steps of a tenth of a second."""
    values = {"component_seconds": (0.06, 0.05), "seconds_draws": np.full(10, seconds, float), "measured": True}
    return PlanOption(
        nodes=nodes,
        workers=workers,
        batch=batch,
        lr=0.1,
        examples=seconds * 10 * workers * batch,
        step_seconds=0.1,
        run_log_sd=0.1,
        degrees_of_freedom=3,
        **values | changes,
    )


FAST, CHEAP = build_option(10.0, workers=4), build_option(16.0, workers=1)


def test_time_and_cost_follow_from_examples_and_steps():
    assert (FAST.seconds, FAST.worker_seconds, FAST.global_batch) == (pytest.approx(10), pytest.approx(40), 128)


def test_options_at_a_deadline_and_a_budget_are_kept():
    options = [CHEAP, FAST]
    assert rank_options(options) == [FAST, CHEAP] and rank_options(options, deadline=20.0) == [CHEAP, FAST]
    assert rank_options(options, deadline=CHEAP.seconds) == [CHEAP, FAST]
    assert rank_options(options, deadline=CHEAP.seconds - 0.01) == [FAST]
    assert rank_options(options, budget=FAST.worker_seconds) == [FAST, CHEAP]
    assert rank_options(options, budget=FAST.worker_seconds - 0.01) == [CHEAP]
    assert rank_options(options, deadline=12.0, budget=20.0) == []


def test_of_equally_fast_options_the_cheaper_one_is_first_and_of_equally_cheap_ones_the_faster():
    dear, cheap = build_option(10.0, workers=4, batch=8), build_option(10.0, workers=2, batch=16)
    assert rank_options([dear, cheap]) == [cheap, dear]
    slow, fast = build_option(20.0, workers=1), build_option(10.0, workers=2)
    assert slow.worker_seconds == fast.worker_seconds
    assert rank_options([slow, fast], deadline=99.0) == [fast, slow]


def test_a_predicted_option_leads_only_where_it_is_clearly_better():
    predicted = build_option(10.0, measured=False, seconds_draws=np.array([1.0] * 10))
    measured = build_option(20.0, seconds_draws=np.array([2.0] * 9 + [1.0]))
    assert put_measured_first([predicted, measured]) == [predicted, measured]
    assert put_measured_first([predicted, replace(measured, seconds_draws=np.array([2.0] * 8 + [1.0] * 2))])[0].measured
    dear = replace(predicted, workers=5)
    assert put_measured_first([dear, measured], by_cost=True)[0] is measured


def test_runner_up_is_another_setting_and_not_only_other_nodes():
    first, spread, other = build_option(10.0), build_option(11.0, nodes=2), build_option(12.0, workers=4)
    assert find_runner_up([first, spread, other]) is other and find_runner_up([first, spread]) is None
    assert find_runner_up([first, spread, build_option(12.0, batch=64)]).batch == 64


def test_share_of_draws_counts_only_faster_ones():
    first = build_option(1.0, seconds_draws=np.array([1.0, 2.0, 3.0, 4.0]))
    assert probability_faster(first, build_option(1.0, seconds_draws=np.array([1.0, 3.0, 4.0, 1.0]))) == 0.5


@pytest.mark.parametrize(
    ("parts", "bottleneck"), [((0.06, 0.05), "compute"), ((0.05, 0.06), "exchange"), ((0.05, 0.05), "compute")]
)
def test_the_longer_part_of_a_step_is_the_bottleneck_up_to_the_critical_batch(parts, bottleneck):
    curve = build_curve()
    small = build_option(10.0, workers=1, batch=int(CRITICAL_BATCH / 2), component_seconds=parts)
    assert find_bottleneck(small, curve) == bottleneck
    assert find_bottleneck(replace(small, batch=int(CRITICAL_BATCH * 1.5)), curve) == "noise"


def test_explanation_has_the_numbers_of_the_option():
    curve = build_curve(batches=(64, 1024, 8192))
    examples = 1.25 * curve.min_examples[0]
    option = replace(build_option(10.0), examples=examples)
    text = explain_option(option, None, curve)
    start = "a step of 64 examples takes 100 ms (60 ms computing, 50 ms exchanging, before overlap)"
    told = f"{start} and {examples:,.0f} examples reach the target, 25% more than the fewest possible; "
    assert curve.identifiable and text == told + BOTTLENECK_TEXT[find_bottleneck(option, curve)]
    assert "fewest possible" not in explain_option(option, None, build_curve(batches=(64, 256, 1024)))
    other = build_option(12.0, workers=4)
    assert explain_option(option, other, curve) == f"{text}; {compare_with_runner_up(option, other)}"


@pytest.mark.parametrize(("share", "clarity"), [(9, "clearly apart"), (8, "not clearly apart: measure more seeds")])
def test_nine_of_ten_draws_are_clearly_apart(share, clarity):
    draws = np.array([2.0] * share + [0.5] * (10 - share))
    option, other = build_option(1.0), build_option(1.5, workers=4, seconds_draws=draws)
    assert compare_with_runner_up(option, other) == (
        f"the runner-up is 4 x 32, +50% in time, slower in {share}0% of draws ({clarity})"
    )


def test_a_runner_up_that_is_as_fast_needs_no_trials():
    option = build_option(1.0)
    same = compare_with_runner_up(option, replace(option, workers=4, examples=2 * option.examples, measured=False))
    assert same.startswith("the runner-up is 4 x 32, +0% in time")


@pytest.mark.parametrize(("runs", "is_preliminary"), [(MIN_PLAN_RUNS, False), (MIN_PLAN_RUNS - 1, True)])
def test_a_plan_at_a_measured_batch_needs_its_runs(runs, is_preliminary):
    curve = build_curve(batches=(64, 256, 1024))
    curve.batch_summary["runs"] = runs
    option = next(option for option in enumerate_all_options() if option.global_batch == 256)
    text = " ".join(collect_warnings(option, build_step_fit(1e4), curve))
    assert ("preliminary" in text) == is_preliminary
    between = replace(option, batch=option.batch + 1)
    assert "preliminary" not in " ".join(collect_warnings(between, build_step_fit(1e4), curve))


def test_batches_are_listed_with_thousands():
    assert format_batches([8, 1024.0, 65536]) == "8, 1,024, 65,536" and format_batches([]) == ""
