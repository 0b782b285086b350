"""Published step times of others over ways of exchange and rates of the link: how well does a part predict the rest?

`diloco-measured` holds step times over the interval of exchange (1, 8, 32, 128) and the rate (50, 200, 1000, 5000
Mbit/s), `grace-*` those of dozens of compressions at 1 and 10 Gbit/s.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from equipoise.planning.build_document import PlanRequest
from equipoise.planning.exchanges.exchange_columns import read_steps_by_exchange
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.exchanges.exchange_plan import ExchangeRequest, build_exchange_plan

KEPT_DATA = Path(__file__).parents[1] / "data"
DATA = Path(os.environ.get("EQUIPOISE_REPLAY", Path(__file__).parents[3] / "shared" / "replay"))


def read_published(name):
    path = next((path for folder in (KEPT_DATA, DATA) if (path := folder / name / "system.csv").is_file()), DATA / name)
    if not path.is_file():
        pytest.skip(f"no measurements to replay in {path}")
    return read_steps_by_exchange(path)


def predict(rows, names, rates):
    request = ExchangeRequest(names=tuple(names), rates=tuple(rates))
    return build_exchange_plan(PlanRequest(system=rows), request).document.system


@pytest.mark.parametrize("sync", ["diloco", "local"])
def test_four_cells_predict_the_grid_of_intervals_and_rates(sync):
    rows = read_published("diloco-measured")
    interval = rows.exchange.map(lambda name: parse_exchange(name).interval)
    is_sync = rows.exchange.str.startswith(f"{sync}:")
    known = rows[is_sync & interval.isin([1, 32]) & rows.bits_per_second.isin([2e8, 5e9])]
    assert len(known) == 4
    grid = rows[rows.exchange != ""].drop(known.index)
    section = predict(known, grid.exchange.unique(), sorted(grid.bits_per_second.unique()))
    predicted = {(row.exchange, row.bits_per_second): row.seconds for row in section.predictions}
    errors = {
        other: [
            abs(predicted[row.exchange, row.bits_per_second] / row.seconds - 1)
            for row in grid[grid.exchange.str.startswith(f"{other}:")].itertuples()
        ]
        for other in ("diloco", "local")
    }
    print({other: (len(values), np.median(values), max(values)) for other, values in errors.items()})
    for values in errors.values():  # the grid of the other method too, of which no cell is known
        assert np.median(values) <= 0.09 and max(values) <= 0.18


@pytest.mark.parametrize("name", ["grace-lstm", "grace-resnet50", "grace-unet"])
def test_runs_at_10_gbit_find_the_fastest_exchange_at_1_gbit(name):
    rows = read_published(name)
    fast, slow = (rows[rows.bits_per_second == rate] for rate in (1e10, 1e9))
    section = predict(fast.reset_index(drop=True), (), (1e9,))
    best = next(row for row in section.fastest_exchanges if row.bits_per_second == 1e9)
    seconds = slow.set_index("exchange").seconds
    predicted = {row.exchange: row.seconds for row in section.predictions if row.bits_per_second == 1e9}
    errors = [abs(predicted[other] / seconds[other] - 1) for other in seconds.index if other in predicted]
    print(name, best.exchange, seconds[best.exchange] / seconds.min() - 1, len(errors), np.median(errors))
    assert best.compared >= 30
    assert seconds[best.exchange] <= 1.05 * seconds.min()
