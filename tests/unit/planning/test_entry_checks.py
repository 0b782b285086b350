"""Entries of plans that contradict themselves are no entries, and units and words of those that do not."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from equipoise.planning.document import PLAN_KEYS, PlanDocument, is_plan
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.memory.memory_at_batch import MemoryAtBatch
from equipoise.planning.parameter_servers.server_cost import require_share, require_shares
from equipoise.planning.sharding.memory_report import MemoryReport, WayMemory
from equipoise.planning.targets.batch_schedule import BatchSchedule, ScheduleStage
from tests.support.errors import raises_code
from tests.support.plan_documents import build_document, build_option, build_plan


def test_settings_have_a_worker_on_each_node_and_whole_micro_batches():
    assert build_option(workers=2, nodes=2).nodes == 2
    with pytest.raises(ValueError, match="2 workers cannot run on 3 nodes"):
        build_option(workers=2, nodes=3)
    assert build_option(workers=2, batch=16, global_batch=96).global_batch == 96
    with pytest.raises(ValueError, match="48 is not a multiple of 2 workers x 16 examples"):
        build_option(workers=2, batch=16, global_batch=48)
    with pytest.raises(ValueError, match="no run takes 0 seconds"):
        replace(build_option(), seconds=IntervalEstimate(value=0.0, low=0.0, high=1.0))


def test_a_plan_with_a_way_of_exchange_has_the_sharding_of_its_name():
    plan = build_plan()
    assert (plan.exchange, plan.sharding) == ("", "none")
    for name, sharding in (("local:8", "none"), ("tensor:2", "tensor:2"), ("ring/full", "full")):
        named = plan.with_exchange(name)
        assert (named.exchange, named.sharding) == (name, sharding)


def test_examples_have_the_unit_of_their_setup():
    assert build_document().unit == ("examples", 1)
    setup = SimpleNamespace(unit="tokens", units_per_example=128)
    assert PlanDocument.unit.fget(SimpleNamespace(setup=setup)) == ("tokens", 128)


def test_a_plan_is_known_by_its_keys():
    contents = dict.fromkeys(PLAN_KEYS)
    assert is_plan(contents) and not is_plan([*PLAN_KEYS]) and not is_plan(None)
    assert not any(is_plan({key: None for key in PLAN_KEYS if key != missing}) for missing in PLAN_KEYS)


@pytest.mark.parametrize("schema", [2, 0, True, 1.0, "1", None])
def test_other_schemas_are_refused(schema):
    with raises_code("plan-invalid", f"its schema is {schema!a}, this version reads 1"):
        PlanDocument.from_json(build_document(plan=build_plan()).to_json() | {"schema": schema})


def build_stage(until, batch, lr=0.1, seconds=2.0, workers=2):
    return ScheduleStage(
        until=until, nodes=1, workers=workers, batch=batch, global_batch=workers * batch, lr=lr, examples=9.0,
        seconds=seconds,
    )  # fmt: skip


def test_a_schedule_says_its_stages_and_what_they_gain():
    stages = (build_stage(0.5, 8), build_stage(0.7, 8), build_stage(0.9, 64, lr=None, workers=1))
    schedule = BatchSchedule(stages=stages, seconds=6.0, constant_seconds=8.0, faster_share=0.9)
    assert schedule.gain == 0.25 and not schedule.is_constant
    assert schedule.describe_gain() == (
        "2 workers x 8 at lr 0.1 until 0.7, 1 worker x 64 until 0.9; predicted 6 s, 25% less than the 8 s of the plan"
        " (less in 90% of draws)"
    )
    constant = replace(schedule, stages=(build_stage(0.5, 8, lr=0.2), build_stage(0.9, 8)))
    assert constant.is_constant and constant.describe_gain().startswith("gains nothing here")


def test_parts_of_servers_are_the_whole_gradient():
    assert require_shares(None, 4) == [0.25] * 4 and require_shares([0.7, 0.3], 2) == [0.7, 0.3]
    for shares in ([0.5, 0.4], [0.5, 0.5, 0.0], [1.5, -0.5]):
        with raises_code("option-range", "2 servers with", "parts that add up to"):
            require_shares(shares, 2)
    assert require_share(None, 4) == 0.25 and require_share(0.25, 4) == 0.25 and require_share(1.0, 4) == 1
    for share in (0.249, 1.001):
        with raises_code("option-range", "4 servers of which the largest has", "from 0.25 to 1"):
            require_share(share, 4)


def test_memory_of_a_sweep_is_the_same_after_writing_and_reading():
    row = MemoryAtBatch(batch=8, weights=1.0, gradients=2.0, moments=4.0, activations=8.0, buffers=16.0)
    ways = (WayMemory(exchange="", workers=2, rows=(row,)), WayMemory(exchange="full", workers=2, rows=()))
    report = MemoryReport(limit_bytes=9e9, ways=ways)
    assert MemoryReport.from_json(report.to_json()) == report and row.total == 31
    assert [way.title for way in ways] == ["the whole model", "full"]
    for damage in ({"schema": 2}, {"limit_bytes": 0}, {"ways": None}):
        with raises_code("file-damaged"):
            MemoryReport.from_json(report.to_json() | damage)
