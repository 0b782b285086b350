"""Filters, orders and places in the table of experiments."""

import pytest

from equipoise.errors import EquipoiseError
from services.site.experiments.experiment_notes import add_tag
from services.site.experiments.index_queries import TableQuery, iterate_rows, parse_table_query, query_table
from services.site.experiments.record_index import RecordIndex
from services.site.experiments.row_filters import parse_filter
from tests.support.experiment_folders import write_results, write_run


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    root = write_results(tmp_path_factory.mktemp("results"))
    write_run(root / "ÜBUNG", lr=0.2)
    write_run(root / "100%_done", lr=0.4, workload="fashion-mnist", seed=5)
    index = RecordIndex(root, root / ".site")
    index.update_now()
    add_tag(index.connect(), "first", "baseline", "Ada")
    return index


def select_paths(index, text, sort="path"):
    return [row.path for row in query_table(index.connect(), TableQuery(filter=text, sort=sort)).rows]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("kind=run lr>=0.1", ["100%_done", "deep/second", "ÜBUNG"]),
        ("kind=run lr<0.1", ["first"]),
        ("workload=fashion-mnist", ["100%_done"]),
        ("workload!=fashion-mnist kind=run seed=1", ["first"]),
        ("tag=baseline", ["first"]),
        ("tag!=baseline kind=run lr>0", ["100%_done", "deep/second", "ÜBUNG"]),
        ("DEEP", ["deep/second"]),
        ("ÜBUNG", ["ÜBUNG"]),
        ("name~Übung", ["ÜBUNG"]),
        ("%_", ["100%_done"]),  # no pattern
        ("kind=run status=max_examples", ["deep/second"]),
        ('kind=run status="max examples"', ["deep/second"]),
        ("status~unreadable", ["broken", "odd"]),
        ("outcome~progress", ["started"]),
        ("lr>0.3 kind=run", ["100%_done"]),
        ("'; DROP TABLE entries; --'", []),
    ],
)
def test_filters_let_through_what_meets_all_terms(index, text, paths):
    assert select_paths(index, text) == paths


@pytest.mark.parametrize(
    "text", ["nothing=1", "lr>fast", "lr>nan", "tag<2", 'name="open', "a " * 21, "x" * 501, "problem=1; DROP TABLE x=2"]
)
def test_a_filter_that_means_nothing_is_refused_with_a_remedy(text):
    with pytest.raises(EquipoiseError) as refused:
        parse_filter(text)
    assert str(refused.value).startswith("cannot filter") and refused.value.remedy


def test_missing_values_come_last_in_both_directions(index):
    for sort in ("lr", "-lr"):
        rows = query_table(index.connect(), TableQuery(sort=sort, limit=1000)).rows
        values = [row.values["lr"] for row in rows]
        known = [value for value in values if value is not None]
        assert known == sorted(known, reverse=sort == "-lr") and values[len(known) :] == [None] * (
            len(values) - len(known)
        )


def test_pages_follow_each_other_without_gaps(index):
    whole = [row.path for row in iterate_rows(index.connect(), TableQuery(sort="-seconds"))]
    parts = []
    for offset in range(0, len(whole), 4):
        page = query_table(index.connect(), TableQuery(sort="-seconds", offset=offset, limit=4))
        parts += [row.path for row in page.rows]
        assert page.total == len(whole) and page.last == len(parts)
    assert parts == whole


@pytest.mark.parametrize(
    "values",
    [("", "nothing", "0"), ("", "", "-1"), ("", "", "1e3"), ("", "", "٣"), ("lr>", "", "0"), ("", "lr; DROP", "0")],
)
def test_nonsense_in_a_request_is_refused(values):
    with pytest.raises(EquipoiseError):
        parse_table_query(*values)
