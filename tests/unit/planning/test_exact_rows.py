"""Rows of tables by their way of exchange: those with exact sums, and the runs of each other one."""

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.exchanges.exact_rows import (
    read_momentum,
    select_exact_runs,
    select_exact_steps,
    select_runs,
    split_by_momentum,
)

STEPS = pd.DataFrame(
    {"workers": [2, 2, 4], "exchange": ["bf16", "", ""], "sent_bytes": 1.0, "encode_seconds": 0.1, "peak_bytes": 5.0}
)
RUNS = pd.DataFrame(
    [
        ("", 1, np.nan, 10.0),
        ("local:4", 4, np.nan, 20.0),
        ("local:4", np.nan, np.nan, 30.0),
        ("local:4", 2, np.nan, 40.0),
        ("server", 4, np.nan, 50.0),
        ("local:4", 4, np.nan, 60.0),
    ],
    columns=["exchange", "workers", "momentum", "examples"],
)


def list_runs(runs, name):
    return [(workers, part.examples.tolist()) for workers, part in select_runs(runs, name)]


def test_exact_rows_lose_the_columns_on_their_exchange():
    exact = select_exact_steps(STEPS)
    assert [*exact.columns] == ["workers", "peak_bytes"] and exact.workers.tolist() == [2, 4]
    assert exact.index.tolist() == [0, 1]
    plain = STEPS.drop(columns="exchange")
    assert select_exact_steps(plain) is plain and select_exact_runs(plain) is plain
    assert [*select_exact_runs(RUNS).columns] == ["examples"] and select_exact_runs(RUNS).examples.tolist() == [10.0]


def test_runs_that_learn_as_exact_sums_do_are_together_and_others_by_their_workers():
    assert list_runs(RUNS, "") == list_runs(RUNS, "tree") == [(None, [10.0, 50.0])]
    assert list_runs(RUNS, "local:4") == [(None, [30.0]), (2, [40.0]), (4, [20.0, 60.0])]
    assert list_runs(RUNS.drop(columns="workers"), "local:4") == [(None, [20.0, 30.0, 40.0, 60.0])]
    assert list_runs(RUNS, "local:8") == []


def test_runs_without_a_way_of_exchange_are_exact():
    plain = RUNS.drop(columns="exchange")
    assert list_runs(plain, "server") == [(None, plain.examples.tolist())] and list_runs(plain, "local:4") == []


def test_momenta_come_apart():
    runs = RUNS.assign(momentum=[np.nan, 0.9, np.nan, 0.0, 0.0, 0.9])
    parts = split_by_momentum(runs)
    assert [part.examples.tolist() for part in parts] == [[10.0, 30.0], [40.0, 50.0], [20.0, 60.0]]
    assert [read_momentum(part) for part in parts] == [None, 0.0, 0.9]
    assert split_by_momentum(RUNS)[0] is RUNS and read_momentum(RUNS.drop(columns="momentum")) is None
    assert list_runs(runs, "local:4") == [(None, [30.0]), (2, [40.0]), (4, [20.0, 60.0])]
    assert list_runs(runs, "") == [(None, [10.0]), (None, [50.0])]


@pytest.mark.parametrize(("momentum", "expected"), [(None, None), (np.nan, None), (0.0, 0.0), ("0.5", 0.5)])
def test_momentum_of_runs_is_a_number_or_none(momentum, expected):
    assert read_momentum(pd.DataFrame({"momentum": [momentum]})) == expected
