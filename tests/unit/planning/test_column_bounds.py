"""Numbers in the columns of measurement tables: the last that is taken at either end, and the first that is refused."""

from pathlib import Path

import pandas as pd
import pytest

from equipoise.planning.exchanges.exchange_columns import (
    ALGORITHM_COLUMNS,
    RUN_EXCHANGE_COLUMNS,
    STEP_EXCHANGE_COLUMNS,
    read_algorithm_times,
)
from equipoise.planning.measurements import (
    EXCHANGE_COLUMNS,
    JOULES_COLUMN,
    PACE_SD_COLUMN,
    STATISTICAL_COLUMNS,
    SYSTEM_COLUMNS,
    TARGET_COLUMNS,
    parse_numbers,
    read_exchange_times,
    read_step_times,
)
from tests.support.errors import raises_code

COUNT = (["1", "2", "7.0", "1e12"], ["0", "0.5", "-1", "1.5", "1000000000001", "inf", "nan", "one"])
SECONDS = (["1e-7", "1e4"], ["0.999e-7", "0", "-1", "1.001e4", "inf", "nan"])
BYTES = (["", "0", "0.5", "1e18"], ["-1", "1.001e18", "inf"])
STATISTICAL = {
    "global_batch": COUNT,
    "lr": (["", "1e-12", "1e6"], ["0.999e-12", "0", "-1", "1.001e6", "inf"]),
    "seed": (["", "0", "-3", "12345678901"], ["0.5", "inf", "x"]),
    "examples": (["1", "1.5", "1e18"], ["", "0.999", "1.001e18"]),
    "reached": (["0", "1"], ["", "2", "-1", "0.5", "true"]),
}
CELLS = [
    (SYSTEM_COLUMNS, {"nodes": COUNT, "workers": COUNT, "batch": COUNT, "seconds": SECONDS}),
    (EXCHANGE_COLUMNS, {"nodes": COUNT, "workers": COUNT, "bytes": COUNT, "seconds": SECONDS}),
    (ALGORITHM_COLUMNS, {"ranks": COUNT, "bytes": COUNT, "seconds": SECONDS}),
    (STATISTICAL_COLUMNS, STATISTICAL),
    (TARGET_COLUMNS, {"target": (["-1e300", "0", "1e300"], ["", "inf", "-inf", "nan"]), **STATISTICAL}),
    (
        {"pace_sd": PACE_SD_COLUMN, "joules": JOULES_COLUMN},
        {
            "pace_sd": (["0", "10"], ["", "-0.001", "10.001"]),
            "joules": (["", "1e-9", "1e12"], ["0", "0.999e-9", "1.001e12"]),
        },
    ),
    (
        STEP_EXCHANGE_COLUMNS,
        {
            "sent_bytes": BYTES,
            "encode_seconds": (["", "0", "1e4"], ["-0.001", "1.001e4"]),
            "bits_per_second": (["", "1", "1e15"], ["0", "0.999", "1.001e15"]),
            "peak_bytes": BYTES,
        },
    ),
    (
        RUN_EXCHANGE_COLUMNS,
        {"workers": ([*COUNT[0], ""], COUNT[1]), "momentum": (["", "0", "0.999"], ["1", "-0.001", "inf"])},
    ),
]


@pytest.mark.parametrize(("columns", "cells"), CELLS, ids=[",".join(columns) for columns, _ in CELLS])
def test_numbers_are_taken_up_to_their_bounds(columns, cells):
    assert columns.keys() == cells.keys()
    for name, (valid, invalid) in cells.items():
        values = parse_numbers(Path("t.csv"), pd.Series(valid, name=name), columns[name])
        assert values.tolist() == pytest.approx([float(cell or "nan") for cell in valid], nan_ok=True)
        for cell in invalid:
            with raises_code("table-invalid", f"t.csv, row 3, column {name}: must be ", f"got {cell!r}"):
                parse_numbers(Path("t.csv"), pd.Series([valid[-1], cell], name=name), columns[name])


def write_table(path, *rows):
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


def test_as_many_workers_as_nodes_are_enough_and_the_first_wrong_row_is_named(tmp_path):
    header, good = "nodes,workers,batch,seconds", ["2,2,8,0.1", "2,4,8,0.2"]
    path = write_table(tmp_path / "system.csv", header, *good)
    assert len(read_step_times(path)) == 2
    write_table(path, header, *good, "3,2,8,0.1", "4,2,8,0.1")
    with raises_code("table-invalid", "row 4, column workers: fewer workers than nodes"):
        read_step_times(path)


def test_two_workers_are_enough_for_an_exchange_and_one_is_not(tmp_path):
    steps = pd.DataFrame({"gradient_bytes": [100, 100]})
    path = write_table(tmp_path / "exchange.csv", "nodes,workers,bytes,seconds", "1,2,50,0.1", "1,4,300,0.2")
    table = read_exchange_times(path, steps)
    assert table.share.tolist() == [0.5, 3.0] and table.kind.tolist() == ["sum", "sum"]
    write_table(path, "nodes,workers,bytes,seconds,kind", "1,2,50,0.1,message", "1,1,300,0.2,sum")
    with raises_code("table-invalid", "row 3, column workers"):
        read_exchange_times(path, steps)
    write_table(path, "nodes,workers,bytes,seconds,kind", "1,2,50,0.1, sum ", "1,2,300,0.2,max")
    with raises_code("table-invalid", "row 3, column kind: must be sum or message, got 'max'"):
        read_exchange_times(path, steps)


@pytest.mark.parametrize("sizes", [[], [100, 101]])
def test_shares_need_one_size_of_the_gradient(tmp_path, sizes):
    path = write_table(tmp_path / "exchange.csv", "nodes,workers,bytes,seconds", "1,2,50,0.1", "1,4,300,0.2")
    steps = pd.DataFrame({"gradient_bytes": sizes} if sizes else {"nodes": [1]})
    with raises_code("table-invalid", f"found {len(sizes)}"):
        read_exchange_times(path, steps)


def test_sums_are_timed_on_two_ranks_or_more_and_a_node_has_one_of_them_at_least(tmp_path):
    header = "algorithm,ranks,bytes,seconds,nodes"
    rows = ["ring,2,1000,0.1,2", "backend,3,1000,0.1,1", " direct ,3,1000,0.1,3"]
    path = write_table(tmp_path / "links.csv", header, *rows)
    table = read_algorithm_times(path)
    assert table.algorithm.tolist() == ["ring", "direct"] and table.index.tolist() == [0, 1]
    for row, message in [
        ("ring,1,1000,0.1,1", "column ranks: a sum needs at least 2"),
        ("ring,2,1000,0.1,3", "column ranks: fewer workers than nodes"),
        ("rnig,2,1000,0.1,1", "column algorithm: must be one of backend, ring"),
        ("doubling,3,1000,0.1,1", "column algorithm: cannot sum over 3 workers"),
    ]:
        write_table(path, header, *rows, row)
        with raises_code("table-invalid", f"row 5, {message}"):
            read_algorithm_times(path)
