"""What the page of the table of experiments shows: columns with links that sort, rows, and places to go on."""

import hashlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from services.site.experiments.experiment_notes import find_tags
from services.site.experiments.index_columns import COLUMN_BY_NAME, SHOWN_COLUMNS
from services.site.experiments.index_queries import ROWS_PER_PAGE, ExperimentRow, TablePage, TableQuery
from services.site.experiments.record_index import IndexState

TABLE_PATH = "/experiments"
KEY_LENGTH = 16  # hexadecimal digits of a row's key


@dataclass(frozen=True, kw_only=True)
class SortLink:
    """Head of a column, which sorts by it."""

    title: str
    href: str
    is_number: bool
    direction: str = ""
    """ascending or descending, if the table is sorted by this column"""


@dataclass(frozen=True, kw_only=True)
class TableCellView:
    """Cell of the table as it is shown."""

    title: str
    text: str
    is_number: bool


@dataclass(frozen=True, kw_only=True)
class TableRowView:
    """Row of the table as it is shown."""

    path: str
    key: str
    """short name that is the same on every page, and may be the id of an element"""
    cells: Sequence[TableCellView]
    """cells after the name"""
    tags: Sequence[str]
    problem: str


@dataclass(frozen=True, kw_only=True)
class TableView:
    """Table as a page shows it."""

    query: TableQuery
    columns: Sequence[SortLink]
    rows: Sequence[TableRowView]
    total: int
    first: int
    last: int
    previous_href: str | None
    next_href: str | None
    csv_href: str
    refresh_href: str
    """address of this view, with the version that it shows"""
    state: IndexState


def build_table_view(connection: sqlite3.Connection, page: TablePage, state: IndexState) -> TableView:
    """Build the view of one page of the table."""
    query = page.query
    tags = find_tags(connection, [row.path for row in page.rows]) if page.rows else {}
    before, after = query.offset - query.limit, query.offset + query.limit
    return TableView(
        query=query,
        columns=[build_sort_link(name, query) for name in SHOWN_COLUMNS],
        rows=[build_row_view(row, tags.get(row.path, [])) for row in page.rows],
        total=page.total,
        first=query.offset + 1 if page.rows else 0,
        last=page.last,
        previous_href=build_table_link(replace(query, offset=max(0, before))) if query.offset else None,
        next_href=build_table_link(replace(query, offset=after)) if after < page.total else None,
        csv_href=build_table_link(replace(query, offset=0, limit=ROWS_PER_PAGE), f"{TABLE_PATH}.csv"),
        refresh_href=build_table_link(query, version=state.version),
        state=state,
    )


def build_sort_link(name: str, query: TableQuery) -> SortLink:
    """Build the head of a column: a second click turns the order around; numbers begin with the largest."""
    column = COLUMN_BY_NAME[name]
    is_sorted = query.sort_column == name
    descends_next = not query.is_descending if is_sorted else column.is_number
    sorted_query = replace(query, sort=f"-{name}" if descends_next else name, offset=0)
    direction = ("descending" if query.is_descending else "ascending") if is_sorted else ""
    href = build_table_link(sorted_query)
    return SortLink(title=column.title, href=href, is_number=column.is_number, direction=direction)


def build_row_view(row: ExperimentRow, tags: Sequence[str]) -> TableRowView:
    """Build the view of one row."""
    cells = [
        TableCellView(
            title=COLUMN_BY_NAME[name].title,
            text=COLUMN_BY_NAME[name].format(row.values[name]),
            is_number=COLUMN_BY_NAME[name].is_number,
        )
        for name in SHOWN_COLUMNS[1:]
    ]
    key = hashlib.sha256(row.path.encode()).hexdigest()[:KEY_LENGTH]
    return TableRowView(path=row.path, key=key, cells=cells, tags=tags, problem=row.problem)


def build_table_link(query: TableQuery, path: str = TABLE_PATH, **more: int) -> str:
    """Return the address of a view of the table, without the parameters that are as usual."""
    usual = TableQuery()
    values = {name: value for name, value in vars(query).items() if value != getattr(usual, name)}
    parameters = urlencode({**values, **more})
    return f"{path}?{parameters}" if parameters else path
