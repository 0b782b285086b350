"""Verdicts on ways of exchange, networks at which they change, and the map of them, in plan.json."""

import json
from dataclasses import replace

import pytest

from equipoise.planning.document import PlanDocument
from equipoise.planning.exchange_choice.exchange_verdict import ExchangeMap, ExchangeVerdict, SwitchesAt
from equipoise.planning.interval import IntervalEstimate
from tests.support.errors import raises_code

INTERVAL = IntervalEstimate(value=2.0, low=1.5, high=2.5)
VERDICT = ExchangeVerdict(
    exchange="local:16",
    nodes=2,
    workers=4,
    batch=32,
    lr=0.05,
    step_seconds=0.1,
    sent_bytes=1e6,
    encode_seconds=0.0,
    examples_ratio=INTERVAL,
    seconds=INTERVAL,
    max_speedup=3.0,
    speedup=INTERVAL,
    verdict="use",
    why="local:16 needs 2 times the examples and is 2 times sooner",
    measured=True,
)
MAP = ExchangeMap(
    bits_per_second=(1e8, 1e9),
    delay_seconds=(0.0,),
    options=("", "local:16"),
    best=((1, 0),),
    exact_seconds=((20.0, 5.0),),
    speedup=((3.0, 1.0),),
    own_bits_per_second=2e8,
    own_delay_seconds=1e-4,
)
DOCUMENT = PlanDocument(
    plan=None,
    front=(),
    warnings=(),
    exchanges=(VERDICT,),
    switches_at=SwitchesAt(bits_per_second=5e8, delay_seconds=None),
    exchange_map=MAP,
)


def test_exchanges_are_the_same_after_writing_and_reading():
    contents = json.loads(json.dumps(DOCUMENT.to_json()))
    assert PlanDocument.from_json(contents) == DOCUMENT
    assert [*contents["exchanges"][0]["speedup"]] == ["value", "low", "high"]
    assert contents["switches_at"] == {"bits_per_second": 5e8, "delay_seconds": None}


def test_plans_without_exchanges_are_still_read():
    contents = DOCUMENT.to_json()
    for name in ("exchanges", "switches_at", "exchange_map"):
        del contents[name]
    document = PlanDocument.from_json(contents)
    assert document.exchanges == () and document.switches_at is document.exchange_map is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("exchanges", 0, "verdict"), "maybe"),
        (("exchanges", 0, "workers"), 1),
        (("exchanges", 0, "speedup"), None),
        (("exchanges", 0, "step_seconds"), 0),
        (("exchanges", 0, "examples_ratio"), {"value": 1.0, "low": 2.0, "high": 1.0}),
        (("switches_at", "bits_per_second"), -1),
        (("exchange_map", "best"), [[1]]),
        (("exchange_map", "best"), [[1, 2]]),
        (("exchange_map", "speedup"), [[1.0, 0.0]]),
        (("exchange_map", "exact_seconds"), []),
    ],
)
def test_invalid_exchanges_are_refused(path, value):
    contents = json.loads(json.dumps(DOCUMENT.to_json()))
    *parents, last = path
    part = contents
    for name in parents:
        part = part[name]
    part[last] = value
    with raises_code("plan-invalid"):
        PlanDocument.from_json(contents)


def test_verdict_tells_its_global_batch():
    assert VERDICT.global_batch == 128
    assert replace(VERDICT, workers=2, batch=8).global_batch == 16
