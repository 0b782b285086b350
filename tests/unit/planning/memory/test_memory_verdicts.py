"""Verdicts on ways of exchange that do not fit in memory, of a plan whose whole models do not."""

import pytest

from equipoise.planning.memory.memory_verdicts import ExcessCandidate, judge_excess
from tests.support.memory_world import MemoryWorld
from tests.support.plan_documents import build_option
from tests.unit.planning.test_plan_choice import build_candidate

WORLD = MemoryWorld(names=("", "full"))
LIMIT = 0.98 * WORLD.peak_bytes("", 4, 8)


@pytest.fixture(scope="module")
def document():
    return WORLD.plan(LIMIT)


def test_what_does_not_fit_is_told_at_its_smallest_setting(document):
    whole = next(verdict for verdict in document.exchanges if verdict.exchange == "")
    assert whole.verdict == "does not fit" and whole.batch == 8
    assert whole.peak_bytes == pytest.approx(WORLD.peak_bytes("", 4, 8), rel=0.03)
    assert whole.why.startswith("the whole model needs 16") and whole.why.endswith("GB of 15.8 GB a worker")
    assert whole.lr == pytest.approx(0.1) and whole.step_seconds > 0


def test_what_fits_in_its_place_is_used_and_says_why(document):
    full = next(verdict for verdict in document.exchanges if verdict.exchange == "full")
    assert (document.plan.exchange, document.plan.sharding, full.verdict) == ("full", "full", "use")
    assert full.why.startswith("full fits in ") and "; the whole model needs 16" in full.why
    assert document.plan.why.endswith("GB of 15.8 GB a worker")
    assert [verdict.exchange for verdict in document.exchanges] == ["full", ""]


@pytest.mark.parametrize(("name", "title"), [("", "the whole model"), ("full", "full")])
def test_verdict_has_the_numbers_of_the_smallest_setting(name, title):
    option = build_option(workers=4, batch=8, lr=0.3)
    excess = ExcessCandidate(build_candidate(name), option, 21e9)
    verdict = judge_excess(excess, 16e9)
    assert (verdict.exchange, verdict.nodes, verdict.workers, verdict.batch, verdict.lr) == (name, 1, 4, 8, 0.3)
    assert (verdict.step_seconds, verdict.peak_bytes) == (0.02, 21e9)
    assert verdict.why == f"{title} needs 21 GB of 16 GB a worker"
