"""Step times of compressed and of rarer exchanges by closed forms, from a fit of step times with exact sums.

    step:        T1 + T2 + encoding              compressed gradients travel after the backward pass, hidden by nothing
    local:H      T1 + (T2 + encoding) / H        weights and moments of the optimizer travel, more than a gradient
    server, async:S    see store_costs.py
    optimizer, full    T1 + 1.5 T2               a sum is two rounds of parts; a third one brings weights

T1 computes, T2 exchanges; exact sums overlap as fitted. No step is shorter than reading its batch, where readers read
ahead. All is in arrays over settings, for maps of many networks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from equipoise.planning.exchange_choice.store_costs import StoreFacts, store_step_seconds
from equipoise.planning.exchanges.exchange_name import (
    COMPRESSED_SHARES,
    SHARDED_SHARES,
    ExchangeMethod,
    parse_exchange,
)
from equipoise.planning.parameter_servers.server_cost import find_part_shares, server_cost
from equipoise.planning.step_time_fit import StepTimeFit
from equipoise.planning.step_time_model import StepSettings, compute_and_exchange_seconds, overlapped_seconds
from equipoise.type_aliases import FloatArray

# as large as the weights and travelling with them; the moments of Adafactor are rows and columns
MOMENTS_BY_OPTIMIZER = {"sgd": 1, "lars": 1, "adamw": 2, "lamb": 2, "adafactor": 0}
SECOND_MOMENTS_BY_OPTIMIZER = {
    "sgd": 0,
    "lars": 0,
    "adamw": 1,
    "lamb": 1,
    "adafactor": 0,
}  # of these, which no compression encodes


class MatrixFacts(NamedTuple):
    """Shapes of a model's gradients, as far as low-rank compression needs them."""

    rows_and_columns: int
    """sum of the rows and columns of all matrices that are compressed"""
    other_bytes: float
    """bytes of the rest, which travels as it is"""


class SlowestLinks(NamedTuple):
    """Delay and rate of the slowest links."""

    delay_seconds: FloatArray | float
    """seconds a message"""
    bits_per_second: FloatArray | float
    """rate; arrays have one row for each network, and one column"""


class ExchangeShape(NamedTuple):
    """Rounds and bytes of an exchange, relative to the exact sum of a gradient in rings."""

    rounds: float
    bytes: FloatArray | float


@dataclass(frozen=True, kw_only=True, eq=False)
class ExchangeCosts:
    """Closed forms of the step times and bytes of each way of exchange."""

    fit: StepTimeFit
    """fit of the step times with exact sums"""
    state_copies: float = 2.0
    """bytes that workers average over those of the gradient: weights, and each moment of the optimizer"""
    exact_copies: float = 0.0
    """those of `state_copies` that compression leaves as they are: second moments of the optimizer"""
    encode_seconds: Mapping[str, float] = field(default_factory=dict)
    """seconds of encoding and decoding all gradients once, by the name of the compression; 0 where it is not known"""
    matrices: MatrixFacts | None = None
    """shapes of the gradients; None where they are not known"""
    store: StoreFacts = StoreFacts()  # noqa: RUF009 - immutable
    """what pushes to servers depend on"""
    step_ratios: Mapping[str, float] = field(default_factory=dict)
    """timed over predicted step times, by way of exchange; 1 where it was not timed"""

    def missing_facts(self, name: str) -> str | None:
        """Return what is missing to predict a way of exchange, or None."""
        method = parse_exchange(name)
        if method.sync is None:
            return "rows with this exchange: its name does not tell what it sends"
        if method.compression.startswith("powersgd") and (self.matrices is None or self.fit.gradient_bytes is None):
            return "the shapes of the model's matrices and the bytes of its gradient"
        if method.sharding not in ("none", *SHARDED_SHARES):
            return "rows with this exchange: what it sends depends on the activations of the model"
        return None

    def step_seconds(self, name: str, settings: StepSettings, network: SlowestLinks | None = None) -> FloatArray:
        """Return the seconds of an average step at each setting; `network` replaces the slowest links.

        With several networks the result has a row for each.
        """
        method = parse_exchange(name)
        parameters = self._replace_links(network)
        compute, full = compute_and_exchange_seconds(self.fit.form, parameters, settings)
        correction, loading = self._correction(settings), self._loading_seconds(settings)
        if method.is_exact:
            return np.maximum(
                overlapped_seconds(compute, full, self.fit.parameters.get("g", 1.0)) * correction, loading
            )
        if method.has_store:
            seconds = store_step_seconds(method, settings, compute, parameters, self.store, correction)
            return np.maximum(seconds, loading) * self._step_ratio(method)
        _, delays = compute_and_exchange_seconds(self.fit.form, parameters, settings, 0.0)
        shape = self._exchange_shape(method, settings)
        exchange = shape.rounds * delays + shape.bytes * (full - delays)
        encode = self.encode_seconds.get(method.compression, 0.0)
        seconds = compute * correction + (exchange * correction + encode) / method.interval
        return np.maximum(seconds, loading) * self._step_ratio(method)

    def waits_for_data(self, name: str, settings: StepSettings) -> bool:
        """Return whether steps with a way of exchange are as long as reading their batch, at any of the settings."""
        method = parse_exchange(name)
        loading = self._loading_seconds(settings) * (1.0 if method.is_exact else self._step_ratio(method))
        return bool(((loading > 0) & np.isclose(self.step_seconds(name, settings), loading)).any())

    def sent_bytes(self, name: str, workers: int) -> float | None:
        """Return the bytes that leave a worker in an average step; None if those of the gradient are not known."""
        method, settings = parse_exchange(name), StepSettings(*(np.array([value], float) for value in (1, workers, 1)))
        if self.fit.gradient_bytes is None or self.missing_facts(name):
            return None
        if method.has_store:
            shares = find_part_shares(self.store.key_bytes, method.servers or workers)
            return server_cost(workers, method.servers, self.fit.gradient_bytes, part_shares=shares).max_sent_bytes
        share = 1.0 if method.is_exact else float(np.squeeze(self._exchange_shape(method, settings).bytes))
        return 2 * (workers - 1) / workers * share * self.fit.gradient_bytes / method.interval

    def encode_seconds_per_step(self, name: str) -> float | None:
        """Return the seconds of encoding and decoding in an average step; None for a compression that was not timed."""
        method = parse_exchange(name)
        unknown = None if method.compression != "none" else 0.0
        seconds = self.encode_seconds.get(method.compression, unknown)
        return None if seconds is None else seconds / method.interval

    def is_timed(self, name: str) -> bool:
        """Return whether steps with this way of exchange were timed."""
        return name in self.step_ratios

    @property
    def slow_level(self) -> str:
        """Level of the slowest links that were measured: `between` nodes, or `local`."""
        return "between" if self.fit.form.between_terms else "local"

    @property
    def network(self) -> SlowestLinks | None:
        """Delay and rate of the slowest links as fitted; None where the fit does not tell them."""
        volume, size = self.fit.parameters.get(f"{self.slow_level}_volume"), self.fit.gradient_bytes
        if not volume or not size:
            return None
        return SlowestLinks(self.fit.parameters.get(f"{self.slow_level}_alpha", 0.0), 8 * size / volume)

    def _replace_links(self, network: SlowestLinks | None) -> dict[str, FloatArray | float]:
        """Return the parameters of the fit, with those of the slowest links replaced."""
        if network is None:
            return {**self.fit.parameters}
        size = self.fit.gradient_bytes or 0.0
        links = {
            f"{self.slow_level}_alpha": network.delay_seconds,
            f"{self.slow_level}_volume": 8 * size / network.bits_per_second,
        }
        return {**self.fit.parameters, **links}

    def _correction(self, settings: StepSettings) -> FloatArray:
        """Return what the measurement of a setting says beyond the fit; it holds for all that happens there."""
        return self.fit.shrunk_seconds(settings) / self.fit.fitted_seconds(settings)

    def _loading_seconds(self, settings: StepSettings) -> FloatArray:
        """Return the seconds in which a worker's readers read a batch, which no way of exchange shortens."""
        return self.fit.loading_seconds(settings) * self._correction(settings)

    def _exchange_shape(self, method: ExchangeMethod, settings: StepSettings) -> ExchangeShape:
        """Return the rounds and bytes of an exchange over those of an exact sum."""
        if method.sharding != "none":
            return ExchangeShape(SHARDED_SHARES[method.sharding], SHARDED_SHARES[method.sharding])
        kind, _, number = method.compression.partition(":")
        copies, exact_copies = (self.state_copies, self.exact_copies) if method.interval_family else (1.0, 0.0)
        if kind == "powersgd" and self.matrices:  # the sum of all P, then that of all Q, and small tensors as they are
            size = 4 * float(number) * self.matrices.rows_and_columns + self.matrices.other_bytes
            return ExchangeShape(2.0, size / (self.fit.gradient_bytes or size))
        if kind == "topk":  # values and places of all others are gathered: (p - 1) rounds of 2 s m bytes
            return ExchangeShape(0.5, float(number) * settings.workers)
        return ExchangeShape(1.0, (copies - exact_copies) * COMPRESSED_SHARES.get(kind, 1.0) + exact_copies)

    def _step_ratio(self, method: ExchangeMethod) -> float:
        """Return what timed steps of this way, or of its other values of H or S, say beyond the closed form."""
        ratios = [
            ratio
            for name, ratio in self.step_ratios.items()
            if name == method.name
            or (method.number_family and parse_exchange(name).number_family == method.number_family)
        ]
        return self.step_ratios.get(method.name) or (float(np.exp(np.mean(np.log(ratios)))) if ratios else 1.0)
