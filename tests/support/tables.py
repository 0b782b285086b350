"""Tables for tests: one whose noise is known, and one with columns of every kind."""

import numpy as np
import pandas as pd


def friedman_table(rows, seed=0):
    """Return Friedman's first problem (1991): five of ten columns count, and the noise has variance 1."""
    rng = np.random.default_rng(seed)
    x = rng.random((rows, 10))
    signal = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    table = pd.DataFrame(x, columns=[f"x{index}" for index in range(1, 11)])
    return table.assign(y=signal + rng.normal(size=rows))


def mixed_table(rows, seed=0):
    """Return a table with columns of every kind, some missing values, and some columns of no use."""
    rng = np.random.default_rng(seed)
    age, city, paid = rng.normal(40, 10, rows), rng.integers(0, 5, rows), rng.random(rows) < 0.4
    known_age = np.where(rng.random(rows) < 0.1, np.nan, age)
    return pd.DataFrame(
        {
            "id": np.arange(rows),
            "key": [f"key-{index}" for index in range(rows)],
            "age": known_age,
            "city": np.array(["Bern", "Graz", "Linz", "Ulm", "Wien"])[city],
            "paid": paid,
            "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 300, rows), unit="D"),
            "country": "here",
            "price": age + 10 * city + rng.normal(size=rows),
            "grade": np.where(age + 20 * paid > 48, "high", "low"),
        }
    )
