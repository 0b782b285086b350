"""Rows of system.csv and statistical.csv by their way of exchange: with exact sums, and the runs of each other one."""

from collections.abc import Iterator

import pandas as pd

from equipoise.planning.exchanges.exchange_name import parse_exchange

EXCHANGE_FACTS = ("exchange", "sent_bytes", "encode_seconds")


def select_exact_steps(table: pd.DataFrame) -> pd.DataFrame:
    """Return the step times with exact sums, without the columns on their exchange."""
    if "exchange" not in table:
        return table
    exact = table[table.exchange == ""].reset_index(drop=True)
    return exact.drop(columns=[name for name in EXCHANGE_FACTS if name in exact])


def select_exact_runs(table: pd.DataFrame) -> pd.DataFrame:
    """Return the training runs with exact sums, which any number of workers may have made."""
    exact = select_exact_steps(table)
    if "exchange" not in table:
        return exact
    return exact.drop(columns=[name for name in ("workers", "momentum") if name in exact])


def select_runs(runs: pd.DataFrame, name: str) -> Iterator[tuple[int | None, pd.DataFrame]]:
    """Yield the training runs of an exchange, by the number of workers where that changes what is learned.

    Runs with different momenta come apart, as runs of one momentum are compared by their learning rates.
    """
    method = parse_exchange(name)
    if "exchange" not in runs:
        if method.learns_exactly:
            yield None, runs
        return
    names = {other: parse_exchange(other).learns_exactly for other in runs.exchange.unique()}
    own = runs[[names[other] if method.learns_exactly else other == name for other in runs.exchange]]
    for part in split_by_momentum(own):
        if method.learns_exactly or "workers" not in part:
            yield None, part
            continue
        if len(unknown := part[part.workers.isna()]):
            yield None, unknown
        for workers in sorted(part.workers.dropna().unique().tolist()):
            yield int(workers), part[part.workers == workers]


def split_by_momentum(runs: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the runs of each momentum; those where a table has none first."""
    if "momentum" not in runs or runs.momentum.isna().all():
        return [runs]
    return [part for _, part in runs.groupby(runs.momentum.astype(float).fillna(-1.0))]


def read_momentum(runs: pd.DataFrame) -> float | None:
    """Return the momentum of runs that share it; None where it is that of all runs of a table."""
    momentum = runs.momentum.iloc[0] if "momentum" in runs else None
    return None if pd.isna(momentum) else float(momentum)
