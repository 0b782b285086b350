"""Plans within a limit of memory: whole models wherever they fit, and the right sharding where they do not."""

from dataclasses import replace

import numpy as np
import pytest

from equipoise.planning.build_document import PlanRequest, build_plan_document
from tests.support.memory_world import MemoryWorld

HEAVY, LIGHT = MemoryWorld(), MemoryWorld(weight_bytes=1e9, example_bytes=1e8)
ROOMY = [(world, draw, share) for world in (HEAVY, LIGHT) for draw, share in enumerate((1.03, 1.2, 2.0, 10.0, 1000.0))]
TIGHT = [
    *((HEAVY, draw, 0.98 * HEAVY.peak_bytes("", 4, 8)) for draw in range(3)),
    *((HEAVY, draw, 1.05 * HEAVY.peak_bytes("full", 4, 64)) for draw in range(3, 6)),
    *((HEAVY, draw, 1.01 * HEAVY.peak_bytes("", 4, 8)) for draw in range(6, 8)),
    *((LIGHT, draw, 0.98 * LIGHT.peak_bytes("", 4, 8)) for draw in range(8, 10)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("world", "draw", "share"), ROOMY)
def test_models_stay_whole_wherever_they_fit(world, draw, share):
    document = replace(world, draw=draw).plan(share * world.peak_bytes("", 4, 128))
    assert document.plan.exchange == "" and document.plan.sharding == "none"
    assert {verdict.verdict for verdict in document.exchanges} <= {"slower", "no gain"}
    assert {verdict.exchange for verdict in document.exchanges} == {"optimizer", "full"}


@pytest.mark.slow
def test_sharding_is_right_where_whole_models_do_not_fit():
    right = sum(is_right(replace(world, draw=draw), limit) for world, draw, limit in TIGHT)
    assert right >= 8


def is_right(world, limit):
    """Return whether the plan is sharded as the truth is, fits, and takes hardly longer than the best setting."""
    best = world.find_best(limit)
    assert best[0] != ""
    plan = world.plan(limit).plan
    if plan is None or plan.sharding == "none":
        return False
    setting = (plan.exchange, plan.workers, plan.batch)
    fits = world.peak_bytes(*setting) <= 1.02 * limit
    return plan.sharding == plan.exchange and fits and world.seconds(*setting) <= 1.1 * world.seconds(*best)


@pytest.fixture(scope="module")
def alone():
    """Return the request of a plan with whole models alone, whose limit leaves out large batches."""
    world = replace(LIGHT, names=("",))
    steps, limit = world.measure_steps().drop(columns="exchange"), 1.03 * world.peak_bytes("", 4, 32)
    return PlanRequest(system=steps, statistical=world.measure_runs(), memory_bytes=limit), limit


def test_settings_that_do_not_fit_are_left_out(alone):
    request, limit = alone
    document = build_plan_document(request)
    assert document.plan.batch == 32
    assert all(LIGHT.peak_bytes("", 4, option.batch) <= 1.02 * limit for option in document.options)
    assert any("that do not fit in memory" in warning and "GB a worker" in warning for warning in document.warnings)


def test_settings_of_unknown_peak_are_kept_and_named(alone):
    request, _ = alone
    steps = request.system.assign(peak_bytes=request.system.peak_bytes.where(request.system.batch == 16))
    document = build_plan_document(replace(request, system=steps))
    assert document.plan.batch > 32
    assert any("is not known: that takes peak_bytes" in warning for warning in document.warnings)
    assert build_plan_document(replace(request, system=steps.assign(peak_bytes=np.nan))).plan == document.plan
