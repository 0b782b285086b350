from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

from equipoise.planning.build_document import PlanRequest, build_plan_document
from equipoise.planning.document import PlanDocument
from equipoise.planning.exchanges.exchange_columns import read_steps_by_exchange
from equipoise.planning.parameter_servers.worker_speeds import (
    are_unequal,
    compare_workers,
    describe_speeds,
    format_seconds_by_worker,
    list_seconds_by_worker,
    select_worker_speeds,
)
from tests.support.errors import raises_code

HEADER = "nodes,workers,batch,seconds,seconds_by_worker\n"


def write_table(path: Path, cells: list[str]) -> Path:
    rows = [f"3,3,{16 * (index + 1)},{0.03 * (index + 2)},{cell}" for index, cell in enumerate(cells)]
    path.write_text(HEADER + "\n".join(rows) + "\n")
    return path


def test_the_slowest_worker_decides_a_synchronous_step():
    speeds = compare_workers(3, 3, 16, (1.0, 1.0, 3.1))
    assert (speeds.slowest, speeds.slowdown, speeds.staleness) == (2, pytest.approx(3.1), 8)
    assert speeds.synchronous_seconds == 3.1 and speeds.without_slowest_seconds == pytest.approx(1.5)
    assert speeds.asynchronous_gain == pytest.approx((2 + 1 / 3.1) / (3 / 3.1))
    assert speeds.gain_without_slowest == pytest.approx(2 * 3.1 / 3)
    text = describe_speeds(speeds)
    assert "rank 2 takes 3.1 times" in text and "--sync async:8" in text
    assert "at most 2.4 times as many examples" in text and "would take at most 2.1 times as many" in text


def test_nothing_is_said_of_equal_workers_or_without_which_too_many_would_be_missing():
    assert not are_unequal((1.0, 1.1)) and not are_unequal((1.0,)) and not are_unequal((0.0, 1.0))
    assert compare_workers(1, 2, 16, (1.0, 1.1)) is None
    assert "without this worker" not in describe_speeds(compare_workers(1, 4, 16, (1.0, 1.0, 3.0, 3.0)))


def test_a_table_has_the_seconds_of_each_worker(tmp_path):
    cells = [format_seconds_by_worker(()), "0.01 0.01 0.03", "0.02 0.02 0.05"]
    table = read_steps_by_exchange(write_table(tmp_path / "system.csv", cells))
    assert table.seconds_by_worker.tolist() == [(), (0.01, 0.01, 0.03), (0.02, 0.02, 0.05)]
    assert select_worker_speeds(table, (3, 3, 16)).batch == 32  # the nearest one that was measured
    assert select_worker_speeds(table, None).batch == 48
    assert select_worker_speeds(table[:1], None) is None
    speeds = select_worker_speeds(table, (3, 3, 32))
    assert speeds.synchronous_seconds == pytest.approx(0.03)
    assert list_seconds_by_worker(table) == {3: {32: (0.01, 0.01, 0.03), 48: (0.02, 0.02, 0.05)}}
    assert list_seconds_by_worker(table.drop(columns="seconds_by_worker")) == {}


@pytest.mark.parametrize("cell", ["0.01 0.02", "a b c", "1 2 0", "1 2 nan", "1 2 1e9"])
def test_wrong_cells_are_refused(tmp_path, cell):
    with raises_code("table-invalid", "row 3"):
        read_steps_by_exchange(write_table(tmp_path / "system.csv", ["", cell]))


def test_a_plan_says_what_unequal_workers_cost(tmp_path):
    table = read_steps_by_exchange(write_table(tmp_path / "system.csv", ["0.01 0.01 0.03", "0.02 0.02 0.06"]))
    runs = pd.DataFrame(
        [(batch, 0.1, seed, 1000.0 + batch + seed, 1) for batch in (48, 96) for seed in range(3)],
        columns=["global_batch", "lr", "seed", "examples", "reached"],
    )
    document = build_plan_document(PlanRequest(system=table, statistical=runs))
    assert document.worker_speeds.workers == 3 and describe_speeds(document.worker_speeds) == document.warnings[0]
    assert PlanDocument.from_json(document.to_json()).worker_speeds == document.worker_speeds
    alone = build_plan_document(PlanRequest(system=table))
    assert alone.worker_speeds and len(alone.warnings) == 2
    equal = build_plan_document(PlanRequest(system=table.drop(columns="seconds_by_worker"), statistical=runs))
    assert equal.worker_speeds is None and asdict(equal)["plan"] == asdict(document)["plan"]
