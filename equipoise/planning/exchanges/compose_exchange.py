"""Step times with a way of exchange that has no rows, put together from a fit of exact rows and closed forms.

The exchange takes a known share of the bytes, by a known algorithm, every H steps. Exchanges every H steps are not
hidden behind computing, those of every step may be.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd

from equipoise.planning.exchange_choice.store_costs import StoreFacts, store_step_seconds
from equipoise.planning.exchanges.algorithm_times import AlgorithmLink
from equipoise.planning.exchanges.exchange_name import ExchangeMethod, parse_exchange
from equipoise.planning.exchanges.exchange_time import AllReduceCost, all_reduce_cost, all_reduce_seconds
from equipoise.planning.exchanges.rate_model import SAME_RATE
from equipoise.planning.parameter_servers.worker_speeds import list_seconds_by_worker
from equipoise.planning.step_time_fit import StepTimeFit
from equipoise.planning.step_time_model import StepSettings, compute_and_exchange_seconds, overlapped_seconds

NEARER_RATE = "a rate nearer to the measured one: its bytes take longer than the fitted exchange"
USUAL_GRADIENT_BYTES = 25e6  # where those of the gradient are not known: those of one bucket
FREE_ENCODINGS = ("none", "bf16")  # a cast to bf16 takes 1 ms for 11 MB


class ClusterSetting(NamedTuple):
    """Nodes, workers on all of them, and examples per worker."""

    nodes: int
    workers: int
    batch: int


@dataclass(frozen=True, kw_only=True, eq=False)
class ExchangeComposer:
    """Fit of the rows with exact sums at one rate, with what it takes to predict other ways of exchange."""

    fit: StepTimeFit
    """fit of the rows with exact sums"""
    rate: float | None
    """bits per second of these rows; None where unknown"""
    rows: pd.DataFrame = field(repr=False)
    """all rows of the table, with the columns on their exchange"""
    links: dict[tuple[str, bool], AlgorithmLink] = field(default_factory=dict)
    """links of the algorithms that were timed alone"""

    def compose_seconds(self, method: ExchangeMethod, setting: ClusterSetting, rate: float | None) -> float | str:
        """Return the seconds of a step from the fit of exact rows, or what is missing for it."""
        seconds = self._compose_busy_seconds(method, setting, rate)
        # no way of exchange reads batches faster
        return seconds if isinstance(seconds, str) else max(seconds, self.fit.loading_per_example * setting.batch)

    def _compose_busy_seconds(self, method: ExchangeMethod, setting: ClusterSetting, rate: float | None) -> float | str:
        """Return the seconds in which a step computes and exchanges, or what is missing for it."""
        if (share := method.byte_share(setting.workers)) is None:
            return "rows with this exchange: its name does not tell what it sends"
        gap = self.fit.missing_measurements(*setting) or self.fit.missing_measurements(1, 1, setting.batch)
        if gap:
            return gap
        if method.has_store:
            return self._store_step_seconds(method, setting, rate)
        encode = self._encode_seconds(method)
        exchange = self._exchange_seconds(method, share, setting)
        moved = self._seconds_of_rate(method, share, setting, rate)
        for part in (encode, exchange, moved):
            if isinstance(part, str):
                return part
        encode, exchange = float(encode), float(exchange) + float(moved)
        if exchange < 0:
            return NEARER_RATE
        compute = self._compute_seconds(setting)
        if method.interval_family is not None:
            return compute + (exchange + encode) / method.interval
        g = self.fit.parameters.get("g", 1.0)
        return float(overlapped_seconds(np.array([compute]), np.array([exchange]), g)[0]) + encode

    def _compute_seconds(self, setting: ClusterSetting) -> float:
        """Return the seconds of computing in a step, of the slowest worker."""
        settings = StepSettings(*(np.array([value], float) for value in setting))
        return float(compute_and_exchange_seconds(self.fit.form, self.fit.parameters, settings)[0][0])

    def _store_step_seconds(self, method: ExchangeMethod, setting: ClusterSetting, rate: float | None) -> float | str:
        """Return the seconds of a step with servers, whose pushes nothing hides, or what is missing for it."""
        links = self._algorithm_links("two-level" if method.all_reduce else "sharded-root", setting)
        change = self._gradient_seconds_of_rate(setting, rate)
        for part in (links, change):
            if isinstance(part, str):
                return part
        values: dict[str, float] = {}
        for level, (alpha, volume) in links.items():  # type: ignore[union-attr]  # it is no text
            is_slowest = level == ("between" if setting.nodes > 1 else "local")
            values |= {f"{level}_alpha": alpha, f"{level}_volume": volume + float(change) * is_slowest}
        if min(values.values()) < 0:
            return NEARER_RATE
        facts = StoreFacts(seconds_by_worker=list_seconds_by_worker(self.rows[self.rows.exchange == ""]))
        settings = StepSettings(*(np.array([value], float) for value in setting))
        compute = np.array([self._compute_seconds(setting)])
        seconds = float(store_step_seconds(method, settings, compute, values, facts)[0])
        return seconds if np.isfinite(seconds) else f"a setting with a worker for each of {method.servers} servers"

    def _encode_seconds(self, method: ExchangeMethod) -> float | str:
        """Return the seconds that encoding takes, as rows of the same compression have them."""
        same = [parse_exchange(name).compression == method.compression for name in self.rows.exchange]
        known = self.rows.encode_seconds[same].dropna()
        if len(known) and method.compression != "none":
            return float(known.median())
        return 0.0 if method.compression in FREE_ENCODINGS else f"encode_seconds of rows with {method.compression}"

    def _exchange_seconds(self, method: ExchangeMethod, share: float, setting: ClusterSetting) -> float | str:
        """Return the seconds of a sum of this share of the bytes, at the rate of the fit."""
        if setting.workers == 1:
            return 0.0
        if share != 1 and not self._has_alpha(setting):
            return f"rows of another number of workers {'on several nodes' if setting.nodes > 1 else 'within one node'}"
        if not method.all_reduce:
            settings = StepSettings(*(np.array([value], float) for value in setting))
            _, exchange = compute_and_exchange_seconds(self.fit.form, self.fit.parameters, settings, share)
            return float(exchange[0])
        links = self._algorithm_links(method.all_reduce, setting)
        if isinstance(links, str):
            return links
        return all_reduce_seconds(
            self._sum_cost(method, share, setting), local=links["local"], between=links["between"]
        )

    def _sum_cost(self, method: ExchangeMethod, share: float, setting: ClusterSetting) -> AllReduceCost:
        """Return the cost of a sum of this share of the gradient, with its bytes in gradients."""
        size = self.fit.gradient_bytes or USUAL_GRADIENT_BYTES
        cost = all_reduce_cost(method.all_reduce or "ring", setting.workers, share * size, setting.nodes)
        local, between = (
            level._replace(serial_bytes=level.serial_bytes / size, overlapped_bytes=level.overlapped_bytes / size)
            for level in (cost.local, cost.between)
        )
        return cost._replace(local=local, between=between)

    def _has_alpha(self, setting: ClusterSetting) -> bool:
        """Return whether the fit separates delay from volume on the links of a setting."""
        return "alpha" in (self.fit.form.between_terms if setting.nodes > 1 else self.fit.form.local_terms)

    def _algorithm_links(self, name: str, setting: ClusterSetting) -> dict[str, tuple[float, float]] | str:
        """Return the seconds a message and the seconds of the whole gradient on both levels, for one algorithm."""
        values, size = self.fit.parameters, self.fit.gradient_bytes
        links: dict[str, tuple[float, float]] = {"local": (0.0, 0.0), "between": (0.0, 0.0)}
        levels = ("local", "between") if name == "two-level" else ("between" if setting.nodes > 1 else "local",)
        for level in levels:
            own = self.links.get((name, level == "between"))
            volume = own.beta * size if own and own.beta is not None and size else values.get(f"{level}_volume")
            alpha = own.alpha if own else values.get(f"{level}_alpha")
            uses_level = setting.nodes > 1 if level == "between" else setting.workers > setting.nodes
            if not uses_level:
                continue
            if alpha is None or volume is None:
                return f"sums by {name} timed alone, or exchange.csv, to tell delay from rate"
            links[level] = alpha, volume
        return links

    def _seconds_of_rate(
        self, method: ExchangeMethod, share: float, setting: ClusterSetting, rate: float | None
    ) -> float | str:
        """Return the seconds that an exchange takes longer at this rate than at that of the fit."""
        if isinstance(change := self._gradient_seconds_of_rate(setting, rate), str) or not change:
            return change
        cost = self._sum_cost(method, share, setting)
        level = cost.between if setting.nodes > 1 else cost.local
        return level.serial_bytes * change  # in gradients

    def _gradient_seconds_of_rate(self, setting: ClusterSetting, rate: float | None) -> float | str:
        """Return the seconds that the bytes of a gradient take longer at this rate than at that of the fit."""
        if rate == self.rate or rate is None or setting.workers == 1:
            return 0.0
        if self.rate is None:
            return "bits_per_second of the rows with exact sums"
        if abs(np.log(rate / self.rate)) < np.log(SAME_RATE):
            return 0.0
        if (size := self._gradient_bytes(setting)) is None:
            return "sent_bytes or gradient_bytes of the rows with exact sums"
        return 8 * size * (1 / rate - 1 / self.rate)

    def _gradient_bytes(self, setting: ClusterSetting) -> float | None:
        """Return the bytes of the gradient: as measured, or as the sent bytes of exact rows of rings say."""
        exact = self.rows[(self.rows.exchange == "") & (self.rows.workers > 1)]
        same = exact[(exact.workers == setting.workers) & exact.sent_bytes.notna()]
        same = same if len(same) else exact[exact.sent_bytes.notna()]
        if len(same):
            return float((same.sent_bytes * same.workers / (2 * (same.workers - 1))).median())
        return self.fit.gradient_bytes
