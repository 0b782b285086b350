"""Which sharding a sweep times before it chooses: the one that would be used, where whole models do not fit."""

from collections.abc import Collection
from typing import NamedTuple

import pandas as pd

from equipoise.planning.sharding.sharding_verdicts import ShardingEstimates


class ShardingSetting(NamedTuple):
    """Sharding, and the setting at which its steps are timed."""

    exchange: str
    workers: int
    batch: int


def choose_timed_sharding(
    estimates: ShardingEstimates, steps: pd.DataFrame, left_out: Collection[str] = ()
) -> ShardingSetting | None:
    """Return the fastest sharding that fits, at the largest batch up to its own at which whole models were timed.

    `steps` are those of whole models, beside which it is timed. None if they fit at their best setting, if no sharding
    does, or if whole models were not timed with as many workers.
    """
    fastest = estimates.find_fastest(left_out) if estimates.memory_binds else None
    if fastest is None or not fastest.fits:
        return None
    option = fastest.estimate.option
    batches = steps[(steps.workers == option.workers) & (steps.batch <= option.batch)].batch
    if batches.empty:
        return None
    return ShardingSetting(fastest.estimate.exchange, option.workers, int(batches.max()))
