import os

import pandas as pd
import pytest

from equipoise.planning.measurements import read_examples_to_target, read_exchange_times, read_step_times
from equipoise.storage.object_store import parse_location
from tests.support.errors import raises_code

STEP_TIMES_CSV = "nodes,workers,batch,seconds\n1,1,8,0.1\n1,2,8,0.2\n"
EXAMPLES_CSV = "global_batch,lr,seed,examples,reached\n8,0.1,0,500,1\n16,,1,700,0\n"


def test_tables_may_have_extra_columns_and_empty_learning_rates(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        STEP_TIMES_CSV.replace("seconds", "seconds,note").replace("0.1\n", "0.1,x\n").replace("0.2\n", "0.2,\n")
    )
    assert read_step_times(path).seconds.tolist() == [0.1, 0.2]
    path.write_text(EXAMPLES_CSV)
    table = read_examples_to_target(path)
    assert table.examples.tolist() == [500, 700]
    assert table.lr.isna().tolist() == [False, True]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "seconds",
            "time",
            r"no column seconds: its first line reads .nodes.workers.batch.time., it needs nodes,workers,batch,seconds",
        ),
        ("0.2", "-0.2", "row 3, column seconds: must be a number of seconds from 1e-7 to 1e4, got '-0.2'"),
        ("0.2", "nan", "row 3, column seconds: .* got 'nan'"),
        ("0.2", "", "row 3, column seconds: .* got ''"),
        ("0.2", "inf", "row 3, column seconds: .* got 'inf'"),
        ("1,2,8", "1,2.5,8", "row 3, column workers: must be a whole number from 1 to 1e12, got '2.5'"),
        ("1,2,8", "3,2,8", "row 3, column workers: fewer workers than nodes"),
        ("1,2,8,0.2\n", "", "has 1 row: a curve needs at least two; add measurements"),
        (STEP_TIMES_CSV, "", "as a table: it is empty; it needs the columns"),
        (STEP_TIMES_CSV, STEP_TIMES_CSV.splitlines()[0], "has 0 rows"),
        ("1,2,8,0.2", "1,2,8,0.2,9,9,9", "as a table: line 3 has 7 cells, and the lines before it have 4"),
        ("1,2,8,0.2", '1,2,"8,0.2', "a quotation mark of line 3 is not closed"),
        (
            STEP_TIMES_CSV,
            STEP_TIMES_CSV.replace("0.1\n", "0.1,9\n").replace("0.2\n", "0.2,9\n"),
            "more cells than its first line",
        ),
        ("0.2", "200000", "row 3, column seconds: .* got '200000'"),
        ("batch,seconds", "batch,seconds,seconds", "has two columns named seconds"),
        ("batch,seconds", "batch,seconds,exhange", "did you mean exchange"),
        ("batch,seconds", "batch,seconds,joule", "did you mean joules"),
        ("1,2,8", f"1,2,{10**25}", "row 3, column batch: must be a whole number from 1 to 1e12"),
    ],
)
def test_bad_cell_is_reported_with_file_row_and_column(tmp_path, old, new, message):
    path = tmp_path / "system.csv"
    path.write_text(STEP_TIMES_CSV.replace(old, new))
    with pytest.raises(ValueError, match=f"system.csv.*{message}"):
        read_step_times(path)


def test_numbers_at_their_bounds_are_accepted(tmp_path):
    path = tmp_path / "system.csv"
    path.write_text(f"nodes,workers,batch,seconds\n1,1,1,1e-7\n1,2,{10**12},1e4\n")
    assert read_step_times(path).batch.tolist() == [1, 10**12]
    for cell, bad in (("1e-7", "0.99e-7"), ("1e4", "1.01e4"), (f"{10**12}", f"{10**12 + 1}")):
        path.write_text(f"nodes,workers,batch,seconds\n1,1,1,1e-7\n1,2,{10**12},1e4\n".replace(cell, bad))
        with raises_code("table-invalid", bad):
            read_step_times(path)


def test_optional_pace_sd_column_is_read_and_validated(tmp_path):
    path = tmp_path / "system.csv"
    header, *rows = STEP_TIMES_CSV.splitlines()
    path.write_text("\n".join([header + ",pace_sd", *(row + ",0.05" for row in rows)]))
    assert read_step_times(path).pace_sd.tolist() == [0.05, 0.05]
    path.write_text("\n".join([header + ",pace_sd", rows[0] + ",-1", rows[1] + ",0"]))
    with raises_code("table-invalid", "row 2, column pace_sd", "'-1'"):
        read_step_times(path)
    path.write_text("\n".join([header + ",pace_sd", rows[0] + ",10", rows[1] + ",10.5"]))
    with raises_code("table-invalid", "row 3, column pace_sd", "'10.5'", "from 0 to 10"):
        read_step_times(path)


def test_reached_must_be_0_or_1_and_missing_file_is_reported(tmp_path):
    path = tmp_path / "s.csv"
    path.write_text(EXAMPLES_CSV.replace("500,1", "500,yes"))
    with raises_code("table-invalid", "row 2, column reached", "'yes'"):
        read_examples_to_target(path)
    with raises_code("path-missing", "none.csv"):
        read_examples_to_target(tmp_path / "none.csv")


def test_pipe_is_refused_without_waiting_and_secret_is_not_shown(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with raises_code("path-kind", "pipe"):
        read_step_times(tmp_path / "pipe")
    with raises_code("url-secret") as error:
        read_exchange_times(parse_location("s3://user:secret@bucket/x.csv"), pd.DataFrame())
    assert "secret" not in str(error.value)


@pytest.fixture
def read_exchanges_for_steps(tmp_path):
    path = tmp_path / "exchange.csv"
    path.write_text("nodes,workers,bytes,seconds\n2,2,500,0.1\n2,2,4000,0.2\n")

    def read(steps_csv):
        (tmp_path / "system.csv").write_text(steps_csv)
        return read_exchange_times(path, read_step_times(tmp_path / "system.csv"))

    return read


def test_exchange_sizes_become_shares_of_the_gradient(read_exchanges_for_steps):
    steps_csv = "nodes,workers,batch,seconds,gradient_bytes\n1,1,8,0.1,4000\n2,2,8,0.1,4000\n"
    exchanges = read_exchanges_for_steps(steps_csv)
    assert exchanges.share.tolist() == [0.125, 1] and exchanges.kind.tolist() == ["sum", "sum"]


@pytest.mark.parametrize(
    ("steps_csv", "value_count"),
    [(STEP_TIMES_CSV, 0), ("nodes,workers,batch,seconds,gradient_bytes\n1,1,8,0.1,4000\n2,2,8,0.1,8000\n", 2)],
)
def test_exchanges_without_a_single_gradient_size_are_refused(read_exchanges_for_steps, steps_csv, value_count):
    with raises_code("table-invalid", "gradient_bytes", value_count):
        read_exchanges_for_steps(steps_csv)


def test_exchange_of_one_worker_is_refused(read_exchanges_for_steps, tmp_path):
    steps_csv = "nodes,workers,batch,seconds,gradient_bytes\n1,1,8,0.1,4000\n2,2,8,0.1,4000\n"
    (tmp_path / "exchange.csv").write_text("nodes,workers,bytes,seconds\n2,2,500,0.1\n1,1,4000,0.2\n")
    with raises_code("table-invalid", "row 3, column workers"):
        read_exchanges_for_steps(steps_csv)


@pytest.mark.parametrize(
    ("rows", "mentioned"),
    [
        (["8,0.1,3,500,1", "16,0.1,3,500,1", "8,0.10,3.0,500,1"], ["rows 2 and 4", "seed 3", "keep one of them"]),
        (["8,0.1,3,500,1", "8,0.1,3,501,1"], ["rows 2 and 3", "different results"]),
        (["8,0.1,3,500,1", "8,0.1,3,500,0"], ["rows 2 and 3", "different results"]),
        (["8,,0,500,1", "8,,0,500,1"], ["rows 2 and 3", "lr unknown"]),
        (["8,0.1,9007199254740993,5,1", "8,0.1,9007199254740993,5,1"], ["seed 9007199254740993"]),
    ],
)
def test_same_run_twice_is_refused_with_both_rows(tmp_path, rows, mentioned):
    path = tmp_path / "s.csv"
    path.write_text("\n".join(["global_batch,lr,seed,examples,reached", *rows]))
    with raises_code("table-invalid", *mentioned):
        read_examples_to_target(path)


@pytest.mark.parametrize(
    "rows",
    [
        ["8,0.1,,500,1", "8,0.1,,500,1"],
        ["8,,0,500,1", "8,0.1,0,500,1"],
        ["8,0.1,9007199254740992,500,1", "8,0.1,9007199254740993,500,1"],
    ],
)
def test_runs_that_may_be_different_ones_are_kept(tmp_path, rows):
    path = tmp_path / "s.csv"
    path.write_text("\n".join(["global_batch,lr,seed,examples,reached", *rows]))
    assert len(read_examples_to_target(path)) == 2


@pytest.mark.parametrize(
    ("row", "column"), [("8,0.1,0,0.5,1", "examples"), ("8,1e18,0,500,1", "lr"), ("8,1e-300,0,500,1", "lr")]
)
def test_impossible_run_is_refused(tmp_path, row, column):
    path = tmp_path / "s.csv"
    path.write_text(f"global_batch,lr,seed,examples,reached\n16,0.1,0,500,1\n{row}\n")
    with raises_code("table-invalid", f"row 3, column {column}"):
        read_examples_to_target(path)


def test_first_exchange_of_an_unknown_kind_is_named(read_exchanges_for_steps, tmp_path):
    steps_csv = "nodes,workers,batch,seconds,gradient_bytes\n1,1,8,0.1,4000\n2,2,8,0.1,4000\n"
    rows = "2,2,sum,500,0.1\n2,2,gather,500,0.1\n2,2,scatter,500,0.1\n"
    (tmp_path / "exchange.csv").write_text("nodes,workers,kind,bytes,seconds\n" + rows)
    with raises_code("table-invalid", "row 3, column kind", "'gather'"):
        read_exchanges_for_steps(steps_csv)
