"""The plan of a sweep with other ways of exchange: verdicts, the winner, and what a run that loses makes of it."""

import time
from dataclasses import replace
from typing import NamedTuple

import pandas as pd
import pytest

from equipoise.config import TrainConfig
from equipoise.planning.build_document import PlanRequest, build_plan_document
from equipoise.planning.confirmation import find_plan_status
from equipoise.planning.document import PlanDocument
from equipoise.planning.exchange_choice.exchange_bounds import DEFAULT_CANDIDATES, bound_exchanges
from equipoise.planning.exchange_choice.exchange_costs import ExchangeCosts
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.step_time_model import StepSettings
from jobs.cli.plan_report import format_confirmation, format_plan
from jobs.ray_tune.confirmation import have_confirmed, list_gains
from jobs.ray_tune.exchanges.exchange_facts import ExchangeFacts, build_exchange_facts, seconds_in_table
from jobs.ray_tune.exchanges.exchange_messages import describe_no_gain
from jobs.ray_tune.exchanges.exchange_sweep import ExchangeSweep
from jobs.ray_tune.exchanges.exchange_tables import add_exchange_steps
from jobs.ray_tune.exchanges.plan_exchanges import add_sweep_verdicts, list_exchange_runs, select_exact_request
from jobs.ray_tune.tuner import SweepTrials
from jobs.timing.exchange_step_timing import ExchangeStepTiming, ExchangeTimings
from jobs.timing.timing_records import TimingTables
from tests.support.exchange_world import ENCODE_SECONDS, ExchangeWorld, fit_world, try_exchanges
from tests.unit.jobs.test_confirmation import build_refuting_run

SLOW, FAST = ExchangeWorld(), ExchangeWorld(rate=1e11, delay=1e-6)
SHAPES = ((1000, 2000), (1000, 2000), (1000,))
FACTS = ExchangeFacts(
    candidates=DEFAULT_CANDIDATES, gradient_shapes=SHAPES, timings=ExchangeTimings(encode_seconds=ENCODE_SECONDS)
)


class SlowSweep(NamedTuple):
    """Measurements of a sweep on slow links, and the plans that they lead to without and with ways of exchange."""

    request: PlanRequest
    runs: pd.DataFrame
    exact: PlanDocument
    document: PlanDocument


@pytest.fixture(scope="module")
def slow():
    *_, runs, _ = try_exchanges(SLOW)
    request = build_request(SLOW, runs[runs.exchange == ""])
    exact = build_plan_document(request)
    return SlowSweep(request, runs, exact, add_sweep_verdicts(exact, request, runs, FACTS))


def build_request(world, runs):
    runs = runs.drop(columns=["exchange", "workers"])
    return PlanRequest(system=world.measure_steps(), exchange=world.measure_exchanges(), statistical=runs)


def build_step_timing(name, ratio, setting=(2, 2, 128)):
    return ExchangeStepTiming(
        exchange=name, nodes=setting[0], workers=setting[1], batch=setting[2], seconds=1.0, exact_seconds=1 / ratio,
        ratio=ratio, pace_sd=0.01, data_seconds=0.0, exchange_seconds=0.1, sent_bytes=1e5, encode_seconds=0.0,
    )  # fmt: skip


def build_sweep(world, tmp_path, candidates=DEFAULT_CANDIDATES):
    steps = world.measure_steps()
    exchanges = world.measure_exchanges().assign(bytes=lambda table: (table.share * 1e7).astype(int))
    timings = TimingTables(steps, exchanges, None, time.time())
    fits, *_ = fit_world(world)
    trials = SweepTrials(
        base=None, folder=tmp_path / "trials", workers_by_batch={}, slots=2, deadline=time.time() + 1000
    )
    facts = replace(FACTS, candidates=candidates)
    return ExchangeSweep(facts, timings, fits.step_fit, trials, 1000.0)


def test_time_is_reserved_only_where_a_way_of_exchange_may_gain(tmp_path):
    runs = SLOW.measure_exact_runs().drop(columns=["exchange", "workers"])
    sweep = build_sweep(SLOW, tmp_path)
    assert sweep.is_worth_time(runs) and not build_sweep(FAST, tmp_path).is_worth_time(runs)
    assert not sweep.is_worth_time(runs[:1]) and not sweep.is_worth_time(runs.assign(reached=0))
    sweep.reserve_time()
    assert sweep.trials.deadline == pytest.approx(sweep.last_deadline - 350)
    assert sweep.trials.reserve.deadline == sweep.last_deadline
    without = build_sweep(SLOW, tmp_path, ())
    without.reserve_time()
    assert without.trials.deadline == without.last_deadline and without.trials.reserve is None


def test_a_gain_that_trials_cannot_tell_from_luck_is_tried_only_by_name():
    fits, costs, _ = fit_world(SLOW)
    bound = bound_exchanges(fits, costs, ["local:16"])[0]
    small = replace(bound, max_speedup=1.3, prior_speedup=1.2)
    assert "with the usual examples the best, local:16, would be 1.2 times as fast" in describe_no_gain([small])
    assert "--exchanges local:16 tries it" in describe_no_gain([small])
    none = replace(bound, max_speedup=1.04, prior_speedup=1.0)
    assert describe_no_gain([none]).endswith("would be at most 1.04 times as fast, if it needed no more examples")
    assert "is not known here" in describe_no_gain([])


def test_timed_steps_correct_the_closed_form_at_their_setting():
    fits, costs, _ = fit_world(SLOW)
    row = build_step_timing("local:16", 0.2)
    corrected = replace(FACTS, timings=ExchangeTimings(steps=[row])).build_costs(fits.step_fit)
    setting = StepSettings(*(pd.Series([value], dtype=float).to_numpy() for value in (2, 2, 128)))
    assert corrected.step_seconds("local:16", setting)[0] == pytest.approx(seconds_in_table(fits.step_fit, row))
    exact = float(fits.step_fit.shrunk_seconds(setting)[0])
    assert seconds_in_table(fits.step_fit, row) == pytest.approx(0.2 * exact)
    assert isinstance(costs, ExchangeCosts) and corrected.is_timed("local:16")


def test_rows_of_timed_steps_stand_beside_those_with_exact_sums():
    fits, *_ = fit_world(SLOW)
    steps = SLOW.measure_steps().assign(data_seconds=0.0, exchange_seconds=0.0, pace_sd=0.0)
    assert add_exchange_steps(steps, fits.step_fit, []) is steps
    table = add_exchange_steps(steps, fits.step_fit, [build_step_timing("local:16", 0.2)])
    assert (table.exchange == "").sum() == len(steps) and table.exchange.iloc[-1] == "local:16"
    request = PlanRequest(system=table, statistical=SLOW.measure_exact_runs().drop(columns="workers"))
    exact = select_exact_request(request)
    assert list(exact.system) == list(steps) and len(exact.system) == len(steps)
    assert "exchange" not in exact.statistical


@pytest.mark.parametrize(("momentum", "optimizer", "copies"), [(0.9, "sgd", 2), (0.0, "sgd", 1), (0.9, "adamw", 3)])
def test_moments_of_the_optimizer_travel_with_the_weights(momentum, optimizer, copies):
    config = TrainConfig(workload="digits", momentum=momentum, optimizer=optimizer).with_defaults()
    facts = build_exchange_facts(config, SHAPES, ("bf16",), ExchangeTimings())
    assert facts.state_copies == copies and facts.number_bytes == 4
    assert facts.exact_copies == (optimizer == "adamw")  # its second moments, whatever the compression
    assert facts.build_costs(fit_world(SLOW)[0].step_fit).exact_copies == facts.exact_copies
    assert facts.find_matrices() == (6000, 4000.0)


def test_winner_is_the_plan_and_that_of_exact_sums_its_runner_up(slow):
    document, plan = slow.document, slow.document.plan
    assert plan.exchange and document.runner_up == slow.exact.plan
    assert [verdict.exchange for verdict in document.exchanges if verdict.verdict == "use"] == [plan.exchange]
    assert document.switches_at.bits_per_second > SLOW.rate
    assert PlanDocument.from_json(document.to_json()).plan == plan
    text = format_plan(document)
    assert f"exchanging by {plan.exchange}" in text and text.count(" use") == 1
    assert "the answer changes at" in text


def test_fast_links_keep_the_exact_plan_and_say_why():
    runs = FAST.measure_exact_runs()
    request = build_request(FAST, runs)
    exact_document = build_plan_document(request)
    document = add_sweep_verdicts(exact_document, request, runs, FACTS)
    assert document.plan == exact_document.plan and document.exchanges
    assert {verdict.verdict for verdict in document.exchanges} == {"no gain"}
    assert "no gain, at most" in format_plan(document)


def test_runs_without_a_column_for_their_exchange_have_exact_sums():
    runs = SLOW.measure_exact_runs().drop(columns=["exchange", "workers"])
    listed = list_exchange_runs(PlanRequest(statistical=runs))
    assert (listed.exchange == "").all() and (listed.workers == 0).all()
    some = runs.assign(exchange="", workers=float("nan"))
    assert list_exchange_runs(PlanRequest(statistical=some)).workers.tolist() == [0] * len(runs)


def test_refuted_winner_gives_way_to_the_exact_plan(slow):
    plan = slow.document.plan
    run = replace(build_refuting_run(plan, 3 * plan.seconds.high), exchange=plan.exchange)
    document = add_sweep_verdicts(slow.exact, slow.request, slow.runs, FACTS, [run])
    assert document.plan == slow.exact.plan and document.runner_up == slow.exact.runner_up
    verdict = next(verdict for verdict in document.exchanges if verdict.exchange == plan.exchange)
    assert verdict.verdict == "slower" and "a training run with" in verdict.why


def test_run_confirms_the_plan_with_its_way_of_exchange_alone(slow):
    plan = slow.document.plan
    run = replace(build_refuting_run(plan, plan.seconds.value), exchange=plan.exchange)
    assert find_plan_status(plan, [run]) == "confirmed"
    assert find_plan_status(replace(plan, exchange=""), [run]) == "not confirmed"
    assert f"exchanging by {plan.exchange}" in format_confirmation(run)


def test_winner_must_be_faster_than_the_exact_plan_when_both_are_run(slow):
    plan = replace(slow.exact.plan, seconds=IntervalEstimate(value=5, low=4, high=6))
    own = replace(build_refuting_run(plan, 5.0), exchange="local:8")
    exact = build_refuting_run(plan, 5.5)
    assert have_confirmed([own]) and have_confirmed([exact, own])
    assert not have_confirmed([build_refuting_run(plan, 4.9), own])
    assert have_confirmed([build_refuting_run(plan, None), own])
    assert not have_confirmed([exact, replace(build_refuting_run(plan, 6.5), exchange="local:8")])


def test_runs_in_turns_confirm_a_plan_that_is_faster_each_time_and_enough_on_average(slow):
    plan = replace(slow.exact.plan, seconds=IntervalEstimate(value=5, low=4, high=6))
    own, missed = (replace(build_refuting_run(plan, seconds), exchange="local:8") for seconds in (5.0, None))
    runs = {seconds: build_refuting_run(plan, seconds) for seconds in (4.9, 5.1, 5.2, 5.5)}
    assert list_gains([runs[5.5], own, runs[5.1], own, runs[4.9]]) == pytest.approx([1.1, 1.02])
    assert list_gains([own]) == [] and list_gains([runs[5.5], missed]) == [0]
    assert have_confirmed([runs[5.5], own, runs[5.1], own])  # 1.06 on average
    assert not have_confirmed([runs[5.2], own]) and not have_confirmed([runs[5.2], own, runs[5.1], own])
    assert not have_confirmed([runs[5.5], own, runs[5.5], own, runs[4.9], own])
