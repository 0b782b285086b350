"""Step times with another way of exchange or at another rate: from rows that have it, else from a fit of exact rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pandas as pd

from equipoise.errors import EquipoiseError
from equipoise.formatting import format_bit_rate, pluralize
from equipoise.planning.exchanges.compose_exchange import ClusterSetting, ExchangeComposer
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.exchanges.fastest_exchange import FastestExchange
from equipoise.planning.exchanges.rate_model import predict_from_rows, select_exchange_rows
from equipoise.planning.sections.step_time_types import StepTimePrediction

PREDICTION_LOG_SD = 0.12  # of the errors on a published grid of intervals and rates: 8 % in the median
INTERVAL_SDS = 1.2816  # standard deviations from the middle of a normal to the ends of 80 %
EXACT_TEXT = "exact sums"


@dataclass(frozen=True, kw_only=True, eq=False)
class ExchangePredictor:
    """Predicts step times from the rows of a table, and where no row has the exchange, from the fit of exact rows."""

    rows: pd.DataFrame = field(repr=False)
    """rows of nodes, workers, batch, seconds, exchange, bits_per_second, sent_bytes and encode_seconds"""
    composer: ExchangeComposer | None = None
    """fit of the rows with exact sums; None without such rows"""

    def predict_seconds(self, setting: ClusterSetting, name: str, rate: float | None) -> float | str:
        """Return the seconds of a step, or what must be measured to predict them."""
        method = parse_exchange(name)
        here = self._select(setting)
        own = select_exchange_rows(here, method)
        seconds = predict_from_rows(own, method.interval, rate)
        if isinstance(seconds, float):
            return seconds
        try:
            composed = self.composer.compose_seconds(method, setting, rate) if self.composer else seconds
            if isinstance(composed, float) or not len(own.seconds):
                return composed
            return predict_from_rows(select_exchange_rows(fill_sent_bytes(here), method), method.interval, rate)
        except EquipoiseError as error:  # an algorithm or servers that so many workers cannot run
            return f"another number of workers: {error.problem}"

    def is_measured(self, setting: ClusterSetting, name: str, rate: float | None) -> bool:
        """Return whether a row has this setting, exchange and rate."""
        rows = self._select(setting)
        rates = rows.bits_per_second[rows.exchange == name]
        return bool(rates.isna().any() if rate is None else (rates == rate).any())

    def _select(self, setting: ClusterSetting) -> pd.DataFrame:
        """Return the rows of a setting."""
        matches = (self.rows[[*ClusterSetting._fields]].to_numpy() == np.array(setting)).all(axis=1)
        rows: pd.DataFrame = self.rows[matches]
        return rows


def fill_sent_bytes(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows whose empty `sent_bytes` are those of the closed form, where the names and `gradient_bytes` tell."""
    if "gradient_bytes" not in rows:
        return rows
    columns = zip(rows.exchange, rows.gradient_bytes, rows.workers, rows.nodes, strict=True)
    sent = [parse_exchange(name).sent_bytes(size, int(workers), int(nodes)) for name, size, workers, nodes in columns]
    return rows.assign(sent_bytes=rows.sent_bytes.fillna(pd.Series(sent, index=rows.index, dtype=float)))


def predict_exchanges(
    predictor: ExchangePredictor,
    settings: Iterable[ClusterSetting],
    names: Sequence[str],
    rates: Sequence[float | None],
) -> tuple[list[StepTimePrediction], list[str]]:
    """Predict all combinations; return also one sentence for each exchange and rate that cannot be predicted."""
    predictions: list[StepTimePrediction] = []
    gaps: dict[str, None] = {}
    for setting, name, rate in product(settings, names, rates):
        if setting.workers == 1 and name and not predictor.is_measured(setting, name, rate):
            continue  # one worker exchanges nothing
        seconds = predictor.predict_seconds(setting, name, rate)
        if isinstance(seconds, str):
            at_rate = "" if rate is None else f" at {format_bit_rate(rate / 8)}"
            workers = pluralize(setting.workers, "worker")
            gaps.setdefault(f"{name or EXACT_TEXT} on {workers}{at_rate} needs {seconds}", None)
            continue
        measured = predictor.is_measured(setting, name, rate)
        spread = 1.0 if measured else float(np.exp(INTERVAL_SDS * PREDICTION_LOG_SD))
        predictions.append(
            StepTimePrediction(
                **setting._asdict(),
                seconds=seconds,
                low=seconds / spread,
                high=seconds * spread,
                measured=measured,
                exchange=name,
                bits_per_second=rate,
            )
        )
    return predictions, list(gaps)


def find_fastest_exchanges(predictions: Iterable[StepTimePrediction]) -> list[FastestExchange]:
    """Return the exchange with the shortest step at each rate and setting where there are several."""
    groups: dict[tuple[float, int, int, int], list[StepTimePrediction]] = {}
    for row in predictions:
        if row.seconds:
            groups.setdefault((row.bits_per_second or 0.0, row.nodes, row.workers, row.batch), []).append(row)
    fastest = []
    for _, rows in sorted(groups.items()):
        names = {row.exchange for row in rows}
        if len(names) > 1:
            best = min(rows, key=lambda row: (row.seconds or 0.0, row.exchange))
            fastest.append(
                FastestExchange(
                    bits_per_second=best.bits_per_second,
                    nodes=best.nodes,
                    workers=best.workers,
                    batch=best.batch,
                    exchange=best.exchange,
                    seconds=best.seconds or 0.0,
                    compared=len(names),
                )
            )
    return fastest
