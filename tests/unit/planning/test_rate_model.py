import numpy as np
import pandas as pd
import pytest

from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.exchanges.rate_model import predict_from_rows, select_exchange_rows

C, T0, VOLUME = 0.03, 0.2, 180e6


def step_seconds(interval, rate):
    return C + (T0 + 8 * VOLUME / rate) / interval


def build_rows(cells, sent=None):
    rows = [
        {"exchange": name, "bits_per_second": rate, "seconds": step_seconds(parse_exchange(name).interval, rate or 1e9)}
        for name, rate in cells
    ]
    if sent is None:
        return pd.DataFrame(rows).assign(sent_bytes=np.nan)
    return pd.DataFrame(rows).assign(sent_bytes=[VOLUME / parse_exchange(row["exchange"]).interval for row in rows])


def predict(rows, name, rate):
    method = parse_exchange(name)
    return predict_from_rows(select_exchange_rows(rows, method), method.interval, rate)


def test_four_cells_predict_the_grid_of_both_methods():
    rows = build_rows([(f"diloco:{interval}", rate) for interval in (1, 32) for rate in (2e8, 5e9)])
    for name in ("diloco:1", "diloco:8", "local:8", "local:128", "local:32"):
        for rate in (5e7, 2e8, 1e9, 5e9, 1e11):
            assert predict(rows, name, rate) == pytest.approx(step_seconds(parse_exchange(name).interval, rate))


def test_one_row_with_its_bytes_predicts_its_own_setting_at_another_rate():
    rows = build_rows([("opaque", 1e9)], sent=True)
    assert predict(rows, "opaque", 1e8) == pytest.approx(rows.seconds[0] + 8 * VOLUME * (1e-8 - 1e-9))
    rows = build_rows([("local:8", 1e9)], sent=True)
    assert predict(rows, "diloco:8", 1e8) == pytest.approx(step_seconds(8, 1e8))
    assert predict(rows, "local:8/bf16", 1e8) == "rows with this exchange"
    assert isinstance(predict(rows, "local:4", 1e8), str)


def test_two_intervals_with_bytes_predict_a_third_at_another_rate():
    rows = build_rows([("local:2", 1e9), ("local:16", 1e9)], sent=True)
    assert predict(rows, "local:4", 1e8) == pytest.approx(step_seconds(4, 1e8))


def test_two_intervals_of_one_link_predict_a_third_on_it():
    rows = build_rows([("local:2", None), ("local:16", None)])
    assert predict(rows, "local:4", None) == pytest.approx(step_seconds(4, 1e9))
    assert isinstance(predict(rows, "local:4", 1e8), str)


def test_two_rates_predict_a_third_without_bytes():
    rows = build_rows([("ours", 1e9), ("ours", 1e10)])
    assert predict(rows, "ours", 2e9) == pytest.approx(step_seconds(1, 2e9))


def test_bytes_that_take_longer_than_the_step_predict_nothing():
    rows = pd.DataFrame([{"exchange": "x", "bits_per_second": 1e8, "seconds": 0.01, "sent_bytes": 1e8}])
    assert isinstance(predict(rows, "x", 1e10), str)
    assert predict(rows, "x", 1e8) == 0.01


def test_more_rate_never_makes_a_step_slower():
    rng = np.random.default_rng(0)
    cells = [(f"local:{interval}", rate) for interval in (1, 4, 32) for rate in (1e8, 1e9, 1e10)]
    for _ in range(20):
        rows = build_rows(cells)
        rows["seconds"] *= np.exp(rng.normal(0, 0.3, len(rows)))
        seconds = [predict(rows, "diloco:8", rate) for rate in np.geomspace(3e7, 3e10, 9)]
        assert seconds == sorted(seconds, reverse=True)
        by_interval = [predict(rows, f"diloco:{interval}", 3e8) for interval in (2, 3, 8, 16, 64)]
        assert by_interval == sorted(by_interval, reverse=True)
