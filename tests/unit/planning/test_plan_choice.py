"""The base of a plan, and its choice among ways of exchange by time or by cost."""

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.build_document import PlanRequest
from equipoise.planning.exchange_choice.table_verdicts import ExchangeCandidate
from equipoise.planning.exchanges.exchange_plan import choose_plan, find_base, mark_predicted
from tests.support.plan_documents import (
    build_document,
    build_option,
    build_plan,
    build_step_prediction,
    build_step_times,
)


def build_candidate(name, workers=None, seconds=None):
    plan = build_plan(workers=workers, seconds=seconds) if workers else None
    return ExchangeCandidate(name=name, rate=None, request=PlanRequest(), document=build_document(plan=plan))


EXACT, SERVER = build_candidate("", 4, 10.0), build_candidate("server", 1, 30.0)
UNSURE, SHARDED = build_candidate("local:8", 1, 5.0), build_candidate("full", 1, 2.0)
UNPLANNED = build_candidate("bf16")


@pytest.mark.parametrize(
    ("candidates", "fastest", "cheapest"),
    [
        ([SERVER, EXACT, UNPLANNED], EXACT, SERVER),
        ([EXACT, UNSURE], EXACT, UNSURE),  # nothing says that it is surely sooner, but it costs less
        ([EXACT, SHARDED], EXACT, EXACT),
        ([UNSURE, SHARDED], SHARDED, SHARDED),
        ([UNPLANNED], None, None),
    ],
)
def test_plan_is_the_fastest_or_the_cheapest_that_is_sure(candidates, fastest, cheapest):
    assert choose_plan(candidates, by_cost=False) is fastest
    assert choose_plan(candidates, by_cost=True) is cheapest


def test_plan_moved_to_another_rate_has_nothing_measured():
    entries = {"plan": build_plan(), "runner_up": build_plan(), "knee": build_option()}
    document = build_document(
        **entries,
        front=(build_option(),),
        options=(build_option(), build_option(4)),
        system=build_step_times(build_step_prediction(2, 8, 0.1)),
    )
    predicted = mark_predicted(document)
    marked = [predicted.plan, predicted.runner_up, predicted.knee, *predicted.front, *predicted.options]
    assert len(marked) == 6 and not any(entry.measured for entry in [*marked, *predicted.system.predictions])
    assert predicted.plan.seconds == document.plan.seconds
    assert mark_predicted(build_document()) == build_document()


@pytest.mark.parametrize(
    ("rows", "base"),
    [
        ([("", 1e8), ("", 1e8), ("", 1e9), ("bf16", 1e9), ("bf16", 1e9), ("bf16", 1e9)], ("", 1e8)),  # of most rows
        ([("", 1e8), ("", 1e9), ("", np.nan)], ("", 1e9)),
        ([("", np.nan), ("bf16", 1e9)], ("", None)),
        ([("bf16", 1e8), ("int8", 1e9), ("int8", 1e9)], ("int8", 1e9)),
    ],
)
def test_base_is_exact_sums_at_the_rate_of_most_rows(rows, base):
    assert find_base(pd.DataFrame(rows, columns=["exchange", "bits_per_second"])) == base
