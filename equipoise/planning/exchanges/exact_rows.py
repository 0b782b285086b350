"""Rows of system.csv and statistical.csv whose sums are exact, beside which a sweep writes those of other ways."""

import pandas as pd

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
    return exact.drop(columns="workers") if "exchange" in table and "workers" in exact else exact
