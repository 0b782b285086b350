"""The plan of a sweep within a limit of memory, and what a run that loses makes of it."""

from dataclasses import replace

import pytest

from equipoise.planning.build_document import build_plan_document
from jobs.ray_tune.exchanges.exchange_facts import ExchangeFacts
from jobs.ray_tune.exchanges.plan_memory import add_memory_verdicts, limit_memory
from tests.unit.jobs.exchanges.test_plan_exchanges import FAST, build_request
from tests.unit.jobs.test_confirmation import build_refuting_run
from tests.unit.planning.sharding.test_sharding_verdicts import build_limit


@pytest.mark.slow
def test_sharding_that_a_run_refuted_is_not_used_again():
    facts = ExchangeFacts(candidates=(), memory=build_limit(2e9))
    exact = limit_memory(build_request(FAST, FAST.measure_exact_runs()), facts)
    assert exact.memory_bytes == 2e9 and exact.system.peak_bytes.notna().all()
    whole = build_plan_document(exact)
    own = add_memory_verdicts(whole, exact, facts).plan
    assert own.sharding == "full"
    run = replace(build_refuting_run(own, 3 * own.seconds.high), exchange="full")
    document = add_memory_verdicts(whole, exact, facts, [run])
    verdicts = {verdict.exchange: verdict for verdict in document.exchanges}
    assert document.plan is None
    assert verdicts["full"].verdict == "slower" and "a training run with full" in verdicts["full"].why


def test_no_limit_changes_nothing():
    request = build_request(FAST, FAST.measure_exact_runs())
    assert limit_memory(request, ExchangeFacts(candidates=())) is request and limit_memory(request, None) is request
    assert ExchangeFacts(candidates=("full", "bf16")).shardings == ()
    limited = ExchangeFacts(candidates=("full:2", "bf16"), memory=build_limit(2e9))
    assert limited.shardings == ("full:2", "optimizer", "full")
