"""Step time of one setting at another rate of the link, or with another interval, from rows that were measured.

    seconds = c + (t0 + 8 V / rate) / H        V: bytes that leave a worker in an exchange, every H steps

Exchanges of every step have H = 1 and their own rows; local:H and diloco:H share theirs. One row with its `sent_bytes`
predicts its own setting at another rate. Rows of two rates tell V better than the bytes do, because links carry less
than their rate. Least squares of relative errors, no parameter below 0.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from equipoise.formatting import format_bit_rate
from equipoise.planning.exchanges.exchange_name import ExchangeMethod, parse_exchange
from equipoise.type_aliases import FloatArray

SAME_RATE = 1.01  # ratio of two rates that count as one


class ExchangeRows(NamedTuple):
    """Measured rows of one setting whose exchanges share their parameters, as arrays of equal length."""

    intervals: FloatArray
    rates: FloatArray
    """bits per second of the slowest link; NaN where unknown"""
    seconds: FloatArray
    sent_bytes: FloatArray
    """bytes that leave a worker in a step; NaN where unknown"""

    def select(self, mask: FloatArray) -> "ExchangeRows":
        """Return the rows where the mask is true."""
        return ExchangeRows(*(values[mask.astype(bool)] for values in self))


def select_exchange_rows(rows: pd.DataFrame, method: ExchangeMethod) -> ExchangeRows:
    """Return the rows of one setting that have this way of exchange, or its own with another interval."""
    methods = [parse_exchange(name) for name in rows.exchange]
    family = method.interval_family
    mask = [other.name == method.name if family is None else other.interval_family == family for other in methods]
    columns = (rows[name].to_numpy(float)[mask] for name in ("bits_per_second", "seconds", "sent_bytes"))
    return ExchangeRows(np.array([other.interval for other in methods], float)[mask], *columns)


def predict_from_rows(rows: ExchangeRows, interval: int, rate: float | None) -> float | str:
    """Return the seconds of a step with this interval and rate, or what must be measured to predict them.

    Without a `rate` only rows of an unknown rate count, as rows of one link.
    """
    if not len(rows.seconds):
        return "rows with this exchange"
    at_rate = np.isnan(rows.rates) if rate is None else is_same(rows.rates, rate)
    at_interval = rows.intervals == interval
    if (at_rate & at_interval).any():
        return float(np.median(rows.seconds[at_rate & at_interval]))
    if rate is not None:
        known = rows.select(~np.isnan(rows.rates))
        seconds = predict_at_rate(known, interval, rate)
        if isinstance(seconds, float):
            return seconds
    here = rows.select(at_rate)
    if len(set(here.intervals.tolist())) > 1:  # one link: c + k / H
        return fit_seconds([np.ones(len(here.seconds)), 1 / here.intervals], here.seconds, [1, 1 / interval])
    if rate is None:
        return "rows of two intervals on one link, or bits_per_second"
    return seconds


def predict_at_rate(rows: ExchangeRows, interval: int, rate: float) -> float | str:
    """Return the seconds of a step from rows whose rates are known, or what must be measured."""
    if not len(rows.seconds):
        return "bits_per_second of its rows"
    ones, per_bit = np.ones(len(rows.seconds)), 8 / (rows.rates * rows.intervals)
    target = [1, 1 / interval, 8 / (rate * interval)]
    num_intervals, num_rates = len(set(rows.intervals.tolist())), len(set(rows.rates.tolist()))
    if num_intervals > 1 and num_rates > 1 and np.linalg.matrix_rank(np.stack([ones, 1 / rows.intervals, per_bit])) > 2:
        return fit_seconds([ones, 1 / rows.intervals, per_bit], rows.seconds, target)
    own = rows.select(rows.intervals == interval)
    if len(set(own.rates.tolist())) > 1:
        return fit_seconds([np.ones(len(own.rates)), 8 / own.rates], own.seconds, [1, 8 / rate])
    with_bytes = rows.select(~np.isnan(rows.sent_bytes))
    if (with_bytes.intervals == interval).any():
        return move_to_rate(with_bytes.select(with_bytes.intervals == interval), rate)
    if len(set(with_bytes.intervals.tolist())) > 1:
        volume = float(np.median(with_bytes.sent_bytes * with_bytes.intervals))
        rest = with_bytes.seconds - 8 * with_bytes.sent_bytes / with_bytes.rates
        if (rest > 0).all():
            columns = [np.ones(len(rest)), 1 / with_bytes.intervals]
            return fit_seconds(columns, rest, target[:2]) + volume * target[2]
    return "sent_bytes of its rows, or rows at a second rate"


def move_to_rate(rows: ExchangeRows, rate: float) -> float | str:
    """Return the seconds of the row with the nearest rate, moved by the time that its bytes take."""
    nearest = int(np.argmin(np.abs(np.log(rows.rates / rate))))
    at_nearest = is_same(rows.rates, float(rows.rates[nearest]))
    old, seconds, sent = (
        float(np.median(values[at_nearest])) for values in (rows.rates, rows.seconds, rows.sent_bytes)
    )
    moved = seconds + 8 * sent * (1 / rate - 1 / old)
    return moved if moved > 0 else f"a row nearer to {format_bit_rate(rate / 8)}: its bytes take longer than its step"


def is_same(rates: FloatArray, rate: float) -> FloatArray:
    """Return which rates are equal to one, but for rounding."""
    return np.asarray(np.abs(np.log(rates / rate)) < np.log(SAME_RATE))


def fit_seconds(columns: list[FloatArray], seconds: FloatArray, target: list[float]) -> float:
    """Fit non-negative factors of the columns to the seconds by relative errors, and return their sum at `target`."""
    design = np.stack(columns, axis=1) / seconds[:, None]
    scale = design.max(axis=0)
    factors, _ = nnls(design / scale, np.ones(len(seconds)))
    return float(factors / scale @ np.array(target))
