"""Verdicts on ways of exchange from tables that anyone measured, and the rate at which the answer changes."""

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.build_document import PlanRequest
from equipoise.planning.document import PlanDocument
from equipoise.planning.exchange_choice.table_verdicts import judge_speedup
from equipoise.planning.exchanges.exchange_plan import ExchangeRequest, build_exchange_plan
from equipoise.planning.interval import IntervalEstimate

SIZE, RATE = 1e7, 1e9
COMPUTE = 0.04
BATCHES = (16, 32, 64)


def step_seconds(workers, batch, rate, interval=1):
    return COMPUTE + 0.001 * batch + sent_bytes(workers) * 8 / rate / interval


def sent_bytes(workers):
    return 2 * (workers - 1) / workers * SIZE


def build_tables(ratio, rate=RATE, noise=0.02):
    """Return step times of exact sums and local:8, and runs whose mean log examples differ by those of a ratio."""
    steps = [
        (
            1,
            workers,
            batch,
            step_seconds(workers, batch, rate, interval),
            name,
            rate,
            2 * (workers - 1) / workers * SIZE / interval,
        )
        for name, interval in (("", 1), ("local:8", 8))
        for workers in (1, 2, 4)
        for batch in BATCHES
    ]
    runs = [
        (batch, 0.1, seed, factor * 2e4 * (1 + batch / 200) * np.exp(noise * (seed - 1)), 1, name)
        for name, factor in (("", 1.0), ("local:8", ratio))
        for batch in (64, 128, 256)
        for seed in range(3)
    ]
    columns = ["nodes", "workers", "batch", "seconds", "exchange", "bits_per_second", "sent_bytes"]
    return PlanRequest(
        system=pd.DataFrame(steps, columns=columns),
        statistical=pd.DataFrame(runs, columns=["global_batch", "lr", "seed", "examples", "reached", "exchange"]),
    )


def plan_tables(ratio, **options):
    document = build_exchange_plan(build_tables(ratio, **options), ExchangeRequest()).document
    assert PlanDocument.from_json(document.to_json()) == document
    return document


def true_gain(rate, ratio):
    """Return how many times sooner local:8 is on a network, each at its best setting."""
    times = {}
    for name, interval, factor in (("", 1, 1.0), ("local:8", 8, ratio)):
        times[name] = min(
            factor * (1 + workers * batch / 200) / (workers * batch) * step_seconds(workers, batch, rate, interval)
            for workers in (1, 2, 4)
            for batch in BATCHES
            if workers * batch in (64, 128, 256)
        )
    return times[""] / times["local:8"]


@pytest.mark.slow
def test_exchange_that_reaches_the_target_sooner_is_used_with_its_interval():
    document = plan_tables(1.2)
    verdict = document.exchanges[0]
    assert document.plan.exchange == verdict.exchange == "local:8" and verdict.verdict == "use"
    assert verdict.examples_ratio.value == pytest.approx(1.2, rel=0.05)
    assert verdict.speedup.value == pytest.approx(true_gain(RATE, 1.2), rel=0.1)
    assert 1 < verdict.speedup.low < verdict.speedup.value < verdict.speedup.high
    assert verdict.sent_bytes == pytest.approx(1.5 * SIZE / 8)
    rate = document.switches_at.bits_per_second
    assert true_gain(0.8 * rate, 1.2) > 1.05 > true_gain(1.25 * rate, 1.2)


@pytest.mark.slow
@pytest.mark.parametrize(("ratio", "rate", "noise"), [(1.1, 1e10, 0.1), (3.0, RATE, 0.02)])
def test_exchange_that_is_not_clearly_sooner_is_not_used(ratio, rate, noise):
    document = plan_tables(ratio, rate=rate, noise=noise)
    verdict = document.exchanges[0]
    assert document.plan.exchange == "" and verdict.verdict != "use" and verdict.speedup.low < 1
    assert (verdict.verdict == "slower") == (verdict.speedup.high < 1)


@pytest.mark.slow
def test_fast_link_keeps_exact_sums():
    document = plan_tables(1.0, rate=1e12)
    assert document.plan.exchange == "" and document.exchanges[0].verdict == "no gain"
    assert document.switches_at.bits_per_second < 1e12


@pytest.mark.parametrize(
    ("low", "value", "high", "verdict", "reason"),
    [
        (1.2, 1.5, 1.8, "slower", "50% sooner, but later than bf16"),
        (0.9, 1.3, 1.8, "unknown", "30% sooner, but not clearly"),
        (0.99, 1.01, 1.03, "no gain", "at most 3% sooner"),
        (0.9, 0.95, 1.0, "no gain", "not sooner"),
        (0.4, 0.5, 0.6, "slower", "2 times as long"),
    ],
)
def test_speedup_decides_on_the_verdict(low, value, high, verdict, reason):
    speedup = IntervalEstimate(value=value, low=low, high=high)
    name, text = judge_speedup(speedup, is_chosen=False, is_clear=low > 1, chosen_name="bf16")
    assert name == verdict and text.startswith(reason)
    assert judge_speedup(speedup, is_chosen=True, is_clear=True, chosen_name="bf16")[0] == "use"
