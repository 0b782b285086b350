"""Predictions of ways of exchange: what is measured, how wide the others are, and which way has the shortest step."""

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.exchanges.compose_exchange import ClusterSetting
from equipoise.planning.exchanges.predict_exchanges import (
    ExchangePredictor,
    find_fastest_exchanges,
    predict_exchanges,
)
from equipoise.planning.sections.step_time_types import StepTimePrediction

COLUMNS = ["nodes", "workers", "batch", "seconds", "exchange", "bits_per_second", "sent_bytes", "encode_seconds"]
HERE = ClusterSetting(1, 2, 8)


def build_predictor(*rows):
    return ExchangePredictor(rows=pd.DataFrame(rows, columns=COLUMNS))


def build_prediction(name, seconds, rate=1e9, workers=2):
    return StepTimePrediction(
        nodes=1, workers=workers, batch=8, seconds=seconds, low=seconds, high=seconds, measured=True, exchange=name,
        bits_per_second=rate,
    )  # fmt: skip


def test_measured_steps_have_no_interval_and_moved_ones_have_that_of_the_method():
    predictor = build_predictor((1, 2, 8, 0.5, "ours", 1e9, 1e6, np.nan))
    (measured, moved), gaps = predict_exchanges(predictor, [HERE], ["ours"], [1e9, 5e8])
    assert (measured.seconds, measured.low, measured.high, measured.measured) == (0.5, 0.5, 0.5, True)
    assert moved.seconds == pytest.approx(0.5 + 8e6 * (1 / 5e8 - 1 / 1e9)) and not moved.measured
    spread = float(np.exp(1.2816 * 0.12))  # 80 % of errors of 12 %
    assert (moved.low, moved.high) == pytest.approx((moved.seconds / spread, moved.seconds * spread))
    assert gaps == [] and (moved.exchange, moved.bits_per_second, moved.workers) == ("ours", 5e8, 2)


def test_gaps_are_told_once_with_what_they_are_of():
    predictor = build_predictor((1, 2, 8, 0.5, "ours", np.nan, np.nan, np.nan), (1, 2, 16, 0.6, "ours", *[np.nan] * 3))
    settings = [HERE, ClusterSetting(1, 2, 16), ClusterSetting(1, 1, 8)]
    predictions, gaps = predict_exchanges(predictor, settings, ["", "ours"], [1e9])
    assert predictions == [] and [gap.partition(" needs ")[0] for gap in gaps] == [
        "exact sums on 2 workers at 1 Gbit/s",
        "ours on 2 workers at 1 Gbit/s",
        "exact sums on 1 worker at 1 Gbit/s",
    ]
    known, gaps = predict_exchanges(predictor, settings[:2], ["ours", ""], [None])
    assert [row.seconds for row in known] == [0.5, 0.6] and all(row.measured for row in known)
    assert [gap.partition(" needs ")[0] for gap in gaps] == ["exact sums on 2 workers"]


def test_what_is_measured_has_the_setting_the_way_and_the_rate():
    predictor = build_predictor((1, 2, 8, 0.5, "ours", 1e9, 1.0, np.nan), (1, 2, 8, 0.7, "", np.nan, 1.0, np.nan))
    assert predictor.is_measured(HERE, "ours", 1e9) and predictor.is_measured(HERE, "", None)
    assert not predictor.is_measured(HERE, "ours", None) and not predictor.is_measured(HERE, "ours", 2e9)
    assert not predictor.is_measured(HERE, "", 1e9) and not predictor.is_measured(ClusterSetting(1, 2, 9), "ours", 1e9)


def test_fastest_way_is_told_where_there_are_several():
    assert find_fastest_exchanges([build_prediction("", 0.5)]) == []
    assert find_fastest_exchanges([build_prediction("", 0.5), build_prediction("", 0.4)]) == []
    rows = [build_prediction("", 0.5), build_prediction("tree", 0.4), build_prediction("ring", 0.4)]
    rows += [build_prediction("", 0.3, 1e8), build_prediction("ring", 0.9, 1e8), build_prediction("", 0.1, workers=4)]
    fastest = find_fastest_exchanges(rows)
    assert [(row.bits_per_second, row.workers, row.exchange, row.seconds, row.compared) for row in fastest] == [
        (1e8, 2, "", 0.3, 2),
        (1e9, 2, "ring", 0.4, 3),
    ]
