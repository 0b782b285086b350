"""The base of a plan, and its choice among ways of exchange by time or by cost."""

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.build_document import PlanRequest
from equipoise.planning.exchange_choice.table_verdicts import ExchangeCandidate
from equipoise.planning.exchanges.exchange_plan import (
    choose_plan,
    fill_exchange_columns,
    find_base,
    list_rates,
    list_settings,
    mark_predicted,
    require_known_exchanges,
    set_momentum,
)
from tests.support.errors import raises_code
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


def build_rows(*rows):
    return pd.DataFrame(rows, columns=["nodes", "workers", "batch", "exchange", "bits_per_second"])


def test_mistyped_ways_of_exchange_are_refused_and_labels_of_rows_are_not():
    rows = build_rows((1, 2, 8, "ours", 1e9))
    require_known_exchanges(["ours", "local:8", "", "powersgd:4"], rows)
    with raises_code("option-choice", "cannot predict the exchange 'ouers'", "local:8"):
        require_known_exchanges(["ours", "ouers"], rows)


def test_rates_rise_and_are_none_where_no_row_has_one():
    rows = build_rows((1, 2, 8, "", 1e9), (1, 4, 16, "", np.nan), (1, 4, 8, "", 1e8), (2, 4, 8, "", 1e9))
    assert list_rates(rows) == [1e8, 1e9] and list_rates(rows.assign(bits_per_second=np.nan)) == [None]
    assert list_settings(rows) == [(1, 2, 8), (1, 4, 16), (1, 4, 8), (2, 4, 8)]


def test_tables_without_columns_on_the_exchange_have_exact_sums_of_unknown_bytes():
    filled = fill_exchange_columns(pd.DataFrame({"workers": [2], "sent_bytes": [7.0]}))
    assert filled.exchange.tolist() == [""] and filled.sent_bytes.tolist() == [7.0]
    assert filled[["bits_per_second", "encode_seconds"]].isna().all(axis=None)
    assert fill_exchange_columns(build_rows((1, 2, 8, "ours", 1e9))).exchange.tolist() == ["ours"]


def test_momentum_of_the_runs_is_that_of_plan_and_runner_up():
    document = build_document(plan=build_plan(), runner_up=build_plan(workers=4))
    assert set_momentum(document, None) is document
    changed = set_momentum(document, 0.0)
    assert (changed.plan.momentum, changed.runner_up.momentum) == (0.0, 0.0)
    assert set_momentum(build_document(), 0.5) == build_document()


def test_of_equally_fast_candidates_the_first_is_chosen():
    first, second = build_candidate("", 4, 10.0), build_candidate("server", 4, 10.0)
    for by_cost in (False, True):
        assert choose_plan([first, second], by_cost=by_cost) is first
        assert choose_plan([second, first], by_cost=by_cost) is second


def test_base_is_the_way_of_most_rows_where_none_is_exact():
    rows = build_rows((1, 2, 8, "int8", 1e9), (1, 2, 8, "bf16", 1e8), (1, 2, 8, "bf16", 1e8), (1, 2, 8, "bf16", 1e9))
    assert find_base(rows) == ("bf16", 1e8)
