"""Tables read from CSV and parquet files, and files that are refused in a sentence."""

import gzip

import pandas as pd
import pytest

from equipoise.workloads.table.table_files import list_table_files, read_table
from tests.support.errors import raises_code
from tests.support.tables import mixed_table


def test_csv_gzip_and_parquet_hold_the_same_rows(tmp_path):
    table = mixed_table(30).drop(columns="day")  # CSV keeps no types of dates
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_csv(tmp_path / "b.csv.gz", index=False)
    table.to_parquet(tmp_path / "c.parquet")
    for name in ("a.csv", "b.csv.gz", "c.parquet"):
        pd.testing.assert_frame_equal(read_table(str(tmp_path / name)).frame, table, check_dtype=False)


def test_files_of_a_folder_are_one_table_in_the_order_of_their_names(tmp_path):
    table = mixed_table(30)
    table[20:].to_parquet(tmp_path / "b.parquet")
    table[:20].to_parquet(tmp_path / "a.parquet")
    (tmp_path / "README.txt").write_text("notes")
    (tmp_path / ".hidden.csv").write_text("x")
    (tmp_path / "_SUCCESS.csv").write_text("x")
    data = read_table(str(tmp_path))
    pd.testing.assert_frame_equal(data.frame, table)
    assert data.locate_row(0) == "row 1 of a.parquet"
    assert data.locate_row(29) == "row 10 of b.parquet"
    with pytest.raises(IndexError):
        data.locate_row(30)


def test_files_with_different_columns_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.csv").write_text("x,z\n1,2\n")
    with raises_code("dataset-invalid", "b.csv", "a.csv", "'y', 'z'"):
        read_table(str(tmp_path))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00x,y\n",
        b"x,y\n1,2,3\n",  # pandas alone would take the first column for an index, or cut the third
        b"x,y\n1,2\n1,2,3\n",
        b"x;y\n1;2\n",
        b"x\n1\n",
        b'x,y\n"1,2\n',
    ],
)
def test_an_unusable_csv_is_refused_by_its_name(tmp_path, content):
    (tmp_path / "points.csv").write_bytes(content)
    with raises_code("dataset-invalid", "points.csv"):
        read_table(str(tmp_path / "points.csv"))


@pytest.mark.parametrize(
    ("content", "mentioned"),
    [
        (b"x,y,x\n1,2,3\n", "two columns 'x'"),  # which pandas would name x.1
        (b"x;y\n1,5;2,5\n", "semicolons"),
        (b"x\ty\n1\t2\n", "tabs"),
        (b"\n\n", "it is empty"),
        ("x,größe\n1,2\n".encode("latin1"), "it is not UTF-8"),
        ("x,y\n1,größe\n".encode("latin1"), "it is not UTF-8"),
        (b"x,y\n1,2\n1,2,3\n", "more cells than the header (Expected 2 fields in line 3, saw 3)"),
    ],
)
def test_a_message_says_what_is_wrong_with_a_csv(tmp_path, content, mentioned):
    (tmp_path / "points.csv").write_bytes(content)
    with raises_code("dataset-invalid", "points.csv", mentioned):
        read_table(str(tmp_path / "points.csv"))


def test_columns_without_a_name_and_a_byte_order_mark_are_no_mistake(tmp_path):
    (tmp_path / "points.csv").write_bytes(b'\xef\xbb\xbf"x\n1",y,,\n1,2,3,4\n')
    assert [*read_table(str(tmp_path / "points.csv")).frame.columns][:2] == ["x\n1", "y"]


def test_damaged_compressed_files_are_refused(tmp_path):
    packed = gzip.compress(b"x,y\n" + b"1,2\n" * 1000)
    (tmp_path / "cut.csv.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "plain.csv.gz").write_bytes(b"x,y\n1,2\n")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and no more")
    for name in ("cut.csv.gz", "plain.csv.gz", "bad.parquet"):
        with raises_code("dataset-invalid", name):
            read_table(str(tmp_path / name))


def test_a_folder_behind_a_url_is_read_from_a_copy(tmp_path, monkeypatch):
    monkeypatch.setenv("EQUIPOISE_CACHE_DIR", str(tmp_path / "cache"))
    table = mixed_table(30)
    (tmp_path / "store").mkdir()
    table.to_parquet(tmp_path / "store" / "a.parquet")
    url = f"file://{tmp_path}/store"
    pd.testing.assert_frame_equal(read_table(url).frame, table)
    (tmp_path / "store" / "b.csv").write_bytes(b"")
    with raises_code("dataset-invalid", f"cannot read {url}/b.csv"):
        read_table(url)


def test_what_is_no_table_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "points.xlsx").write_bytes(b"")
    with raises_code("path-missing", "none.csv"):
        list_table_files(tmp_path / "none.csv", str(tmp_path / "none.csv"))
    for name in ("empty", "points.xlsx"):
        with raises_code("dataset-invalid", name, ".csv.gz"):
            list_table_files(tmp_path / name, str(tmp_path / name))
