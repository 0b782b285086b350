"""Seconds, delays and bytes of ways of exchange: those of the network that was simulated."""

from dataclasses import replace

import numpy as np
import pytest

from equipoise.planning.build_document import PlanRequest
from equipoise.planning.exchange_choice.exact_fits import fit_exact_sums
from equipoise.planning.exchange_choice.exchange_bounds import DEFAULT_CANDIDATES
from equipoise.planning.exchange_choice.exchange_costs import SlowestLinks
from equipoise.planning.exchange_choice.exchange_verdicts import judge_exchanges
from equipoise.planning.exchange_choice.ratio_table import fit_ratio_table
from tests.support.exchange_world import ENCODE_SECONDS, ExchangeWorld, fit_world

SLOW = ExchangeWorld(rate=1e9)


@pytest.mark.parametrize("name", ["", "bf16", "int8", "powersgd:4", "topk:0.01", "local:8", "diloco:32", "server",
                                  "async:1", "async:4"])  # fmt: skip
def test_closed_forms_are_those_of_the_simulated_network(name):
    fits, costs, _ = fit_world(SLOW)
    truth = [SLOW.step_seconds(name, option.workers, option.batch) for option in fits.options]
    assert costs.step_seconds(name, fits.settings) == pytest.approx(truth, rel=0.04)


def test_network_of_the_fit_changes_nothing_and_others_give_their_own_times():
    fits, costs, _ = fit_world(SLOW)
    for name in ("", "bf16", "local:8", "server", "async:2"):
        same = costs.step_seconds(name, fits.settings, costs.network)
        assert same == pytest.approx(costs.step_seconds(name, fits.settings))
        other = replace(SLOW, rate=1e8, delay=5e-3)
        truth = [other.step_seconds(name, option.workers, option.batch) for option in fits.options]
        assert costs.step_seconds(name, fits.settings, SlowestLinks(5e-3, 1e8)) == pytest.approx(truth, rel=0.04)
    assert costs.network == pytest.approx((SLOW.delay, SLOW.rate), rel=0.02)


def test_rounds_of_an_exchange_cost_their_delays():
    fits, costs, _ = fit_world(SLOW)
    slow_messages = replace(SLOW, rate=1e12, delay=0.1)
    for name in ("", "bf16", "powersgd:4", "topk:0.01"):
        truth = [slow_messages.step_seconds(name, option.workers, option.batch) for option in fits.options]
        assert costs.step_seconds(name, fits.settings, SlowestLinks(0.1, 1e12)) == pytest.approx(truth, rel=0.04)


def test_seconds_of_encoding_are_those_of_an_average_step():
    _, costs, _ = fit_world(SLOW)
    assert costs.encode_seconds_per_step("int8") == ENCODE_SECONDS["int8"]
    assert costs.encode_seconds_per_step("local:8") == 0 and costs.encode_seconds_per_step("powersgd:7") is None
    assert replace(costs, encode_seconds={"none": 0.4}).encode_seconds_per_step("local:8") == pytest.approx(0.05)


def test_sent_bytes_are_those_of_the_closed_forms():
    _, costs, _ = fit_world(SLOW)
    assert costs.sent_bytes("", 4) == pytest.approx(1.5e7)
    assert costs.sent_bytes("int8", 4) == pytest.approx(1.5e7 / 4)
    assert costs.sent_bytes("local:8", 4) == pytest.approx(2 * 1.5e7 / 8)
    assert costs.sent_bytes("topk:0.01", 4) == pytest.approx(3 * 2 * 1e5)
    assert costs.sent_bytes("fedavg", 4) is None
    assert costs.sent_bytes("server", 4) == costs.sent_bytes("async:3", 4) == pytest.approx(1.5e7)
    assert costs.sent_bytes("server/servers:1", 4) == pytest.approx(3e7)  # of the only server
    adamw = replace(costs, state_copies=3.0, exact_copies=1.0)
    assert adamw.sent_bytes("local:8", 4) == pytest.approx(3 * 1.5e7 / 8)
    assert adamw.sent_bytes("local:8/bf16", 4) == pytest.approx((2 * 0.5 + 1) * 1.5e7 / 8)
    assert adamw.sent_bytes("bf16", 4) == pytest.approx(1.5e7 / 2)


def fit_reading(seconds):
    """Return fits and costs of a slow network whose workers read an example in so many seconds, ahead of the steps."""
    fits, costs, runs = fit_world(SLOW)
    steps = SLOW.measure_steps()
    waits = (seconds * steps.batch - steps.seconds).clip(lower=0)
    steps = steps.assign(seconds=steps.seconds + waits, data_seconds=waits, read_ahead=1)
    fits = fit_exact_sums(PlanRequest(system=steps, exchange=SLOW.measure_exchanges(), statistical=runs))
    return fits, replace(costs, fit=fits.step_fit), runs


def test_no_way_of_exchange_makes_a_step_shorter_than_reading_its_batch():
    fits, costs, _ = fit_reading(0.004)
    reading = 0.004 * np.array([option.batch for option in fits.options])
    for name in ("", "bf16", "powersgd:4", "local:8", "server", "async:4"):
        busy = [SLOW.step_seconds(name, option.workers, option.batch) for option in fits.options]
        assert costs.step_seconds(name, fits.settings) == pytest.approx(np.maximum(busy, reading), rel=0.05)
    slow = costs.step_seconds("local:8", fits.settings, SlowestLinks(*np.array([[[1e-4], [0.5]], [[1e9], [1e6]]])))
    assert slow.shape == (2, len(fits.options)) and (slow[1] > 2 * reading).all()


def test_where_steps_wait_for_batches_no_exchange_pays_and_the_reason_is_given():
    fits, costs, runs = fit_reading(0.02)
    verdicts = judge_exchanges(fits, costs, fit_ratio_table(runs), DEFAULT_CANDIDATES).verdicts
    assert {verdict.verdict for verdict in verdicts} == {"no gain"}
    assert all(verdict.why.endswith("; its steps wait for batches") for verdict in verdicts)
    fits, costs, runs = fit_reading(1e-6)
    verdicts = judge_exchanges(fits, costs, fit_ratio_table(runs), DEFAULT_CANDIDATES).verdicts
    assert "unknown" in {verdict.verdict for verdict in verdicts}
    assert not any("wait for batches" in verdict.why for verdict in verdicts)
