"""The rate of links at which another way of exchange starts or stops to be the best, where the truth is a formula."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.exchange_choice.exchange_bounds import MIN_GAIN
from equipoise.planning.exchange_choice.table_verdicts import (
    SCANNED_DECADES,
    find_rate_switch,
    predict_at_rates,
    read_median,
)

COMPUTE, BITS = 0.1, 1e8
RATIO = 1.5
EXCESS = MIN_GAIN * RATIO
TRUE_RATE = BITS / (COMPUTE * (EXCESS - 1) / (1 - EXCESS / 8))  # exact steps over those of local:8 are EXCESS there


class Predictor:
    """Seconds of a step by their formula; a text where a way of exchange is not known."""

    def predict_seconds(self, setting, name, rate):
        if name == "unknown":
            return "rows with this exchange"
        return COMPUTE + BITS / rate / (8 if name else 1) + 0.001 * setting.batch


def build_candidate(name, rate, ratio=1.0, batches=(0,)):
    options = [
        SimpleNamespace(nodes=1, workers=4, batch=batch, examples=ratio * 1000.0, global_batch=100) for batch in batches
    ]
    document = SimpleNamespace(options=options)
    return SimpleNamespace(name=name, rate=rate, is_exact=name in ("", "tree"), document=document)


@pytest.mark.parametrize("share", [0.02, 0.5, 2.0, 50.0])
def test_switch_is_found_to_either_side_of_the_rate(share):
    rate = TRUE_RATE * share
    candidates = [build_candidate("", rate), build_candidate("local:8", rate, RATIO)]
    assert find_rate_switch(candidates, Predictor()) == pytest.approx(TRUE_RATE, rel=0.02)


@pytest.mark.parametrize("share", [2 * 10**SCANNED_DECADES, 0.5 / 10**SCANNED_DECADES])
def test_a_switch_beyond_two_decades_is_none(share):
    rate = TRUE_RATE * share
    candidates = [build_candidate("", rate), build_candidate("local:8", rate, RATIO)]
    assert find_rate_switch(candidates, Predictor()) is None


def test_without_a_rate_or_another_way_there_is_no_switch():
    exact, other = build_candidate("", TRUE_RATE), build_candidate("local:8", TRUE_RATE, RATIO)
    assert find_rate_switch([build_candidate("", None), other], Predictor()) is None
    assert find_rate_switch([exact, build_candidate("tree", TRUE_RATE)], Predictor()) is None
    assert find_rate_switch([exact, build_candidate("unknown", TRUE_RATE)], Predictor()) is None
    assert find_rate_switch([exact, other, build_candidate("unknown", TRUE_RATE)], Predictor()) is not None


def test_the_best_setting_of_a_candidate_counts_at_each_rate():
    rates = np.array([1e9, 1e10])
    candidate = build_candidate("", 1e9, batches=(50, 0, 20))
    expected = 10 * (COMPUTE + BITS / rates)
    assert predict_at_rates(candidate, Predictor(), rates) == pytest.approx(expected)
    assert np.isinf(predict_at_rates(build_candidate("unknown", 1e9), Predictor(), rates)).all()


def test_median_of_a_column_is_told_where_it_has_numbers():
    rows = pd.DataFrame({"sent_bytes": [1.0, np.nan, 4.0], "encode_seconds": np.nan})
    assert read_median(rows, "sent_bytes") == 2.5 and read_median(rows, "encode_seconds") is None
    assert read_median(rows, "peak_bytes") is None and read_median(None, "sent_bytes") is None
