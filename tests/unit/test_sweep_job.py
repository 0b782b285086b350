import json
from pathlib import Path

import pandas as pd
import pytest

from equipoise import system
from jobs.ladder import Row, apart, kept
from jobs.sweep import Asked, Fastest
from jobs.tuning import ended


def asked(**more):
    return Asked(workload="digits", out=Path("x"), **more)


def test_batches_are_octaves_and_no_global_batch_is_larger_than_the_training_split():
    assert asked(batch="8:100").batches() == [8, 16, 32, 64]
    assert asked(workers=(2, 1, 2), batch="8:64").ladders(100) == {1: [8, 16, 32, 64], 2: [8, 16, 32]}
    assert asked(workers=(1, 20), batch="8:16").ladders(100) == {1: [8, 16]}


@pytest.mark.parametrize("batch", ["8", "64:8", "0:8", "a:b", "8:16:32"])
def test_a_range_of_batches_that_is_none_is_refused(batch):
    with pytest.raises(ValueError, match="LEAST:MOST"):
        asked(batch=batch).batches()


def test_batches_beyond_the_data_are_refused():
    with pytest.raises(ValueError, match="fits the 100 training examples"):
        asked(batch="128:512").ladders(100)


def test_a_rate_is_a_start_or_a_range():
    assert asked(lr="0.1").rates()[0] == 0.1
    start, bounds = asked(lr="0.01:0.09").rates()
    assert start == pytest.approx(0.03) and bounds == (0.01, 0.09)


@pytest.mark.parametrize("lr", ["0", "-1", "nan", "inf", "1:0.1", "a", "0.1:0.2:0.3", ""])
def test_a_rate_that_is_none_is_refused(lr):
    with pytest.raises(ValueError, match="lr must be"):
        asked(lr=lr).rates()


@pytest.mark.parametrize("wrong", [{"workers": ()}, {"workers": (0, 1)}, {"budget_seconds": 0.0}, {"seeds": 0}])
def test_what_makes_no_sweep_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong)).replace("_", "-")):
        asked(**wrong).check()


def test_trials_end_with_the_budget_but_get_their_part_of_it():
    sweep = asked(budget_seconds=100.0)
    assert sweep.until(start=1000.0, now=1010.0) == 1100.0
    assert sweep.until(start=1000.0, now=1070.0) == 1110.0


def test_the_fastest_workers_are_found_for_each_global_batch():
    rows = [
        (1, 1, 8, 0.010),
        (1, 1, 16, 0.018),
        (1, 2, 8, 0.013),
        (1, 2, 16, 0.016),
        (1, 1, 32, 0.034),
        (1, 2, 32, 0.026),
    ]
    timed = system.fitted(pd.DataFrame(rows, columns=["nodes", "workers", "batch", "seconds"]))
    fastest = Fastest(timed)
    assert fastest.workers == {8: 1, 16: 2, 32: 2, 64: 2}
    assert fastest.step(8) == pytest.approx(0.010, rel=0.1)


def test_the_clocks_own_error_is_that_of_the_setting_timed_twice():
    row = Row(nodes=1, workers=1, batch=8, seconds=0.010, data_seconds=0.0, exchange_seconds=0.0, pace_sd=0.1)
    rows = pd.DataFrame([vars(row), vars(row) | {"seconds": 0.011, "repeat": True}])
    assert apart(rows) == pytest.approx(0.1)
    assert apart(rows[~rows["repeat"]]) is None


def test_a_damaged_ladder_is_named_and_what_to_do(tmp_path):
    row = {"nodes": 1, "workers": 1, "batch": 8, "seconds": 0.01, "data_seconds": 0.0, "exchange_seconds": 0.0}
    row |= {"pace_sd": 0.1, "repeat": False}
    path = tmp_path / "workers-1.json"
    assert kept(path) == ([], [])
    path.write_text(json.dumps({"rows": [row], "too_large": [16]}))
    assert kept(path) == ([Row(**row)], [16])
    for damaged in ("{", "{}", "[]", "null", json.dumps({"rows": [row | {"seconds": -1}], "too_large": []})):
        path.write_text(damaged)
        with pytest.raises(ValueError, match=r"workers-1\.json is damaged: remove it"):
            kept(path)


def test_a_damaged_trial_is_named_and_what_to_do(tmp_path):
    (tmp_path / "batch-8.json").write_text('{"schema": 1')
    with pytest.raises(ValueError, match=r"batch-8\.json is damaged: remove it, and the same command"):
        ended(tmp_path)
