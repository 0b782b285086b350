"""Questions to the index: a page of the table, all rows of a filter, and one experiment."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from dashboards.experiments import PAGES_BY_KIND
from equipoise.errors import EquipoiseError
from services.http.query_numbers import parse_whole_number
from services.site.experiments.index_columns import COLUMN_BY_NAME, INDEX_COLUMNS, Value
from services.site.experiments.row_filters import parse_filter

ROWS_PER_PAGE = 50
MAX_ROWS_PER_PAGE = 1000
MAX_OFFSET = 10**9
DEFAULT_SORT = "-modified"
FETCHED_ROWS = 500  # at a time, of a CSV
COLUMN_LIST = ", ".join(column.name for column in INDEX_COLUMNS)


@dataclass(frozen=True, kw_only=True)
class TableQuery:
    """Rows that somebody wants to see: filter, order and place."""

    filter: str = ""
    sort: str = DEFAULT_SORT
    """name of a column; the largest values come first after a minus sign"""
    offset: int = 0
    limit: int = ROWS_PER_PAGE

    @property
    def sort_column(self) -> str:
        """Name of the column that the rows are sorted by."""
        return self.sort.removeprefix("-")

    @property
    def is_descending(self) -> bool:
        """Whether the largest values come first."""
        return self.sort.startswith("-")


@dataclass(frozen=True, kw_only=True)
class ExperimentRow:
    """Row of the table of experiments."""

    path: str
    values: dict[str, Value]
    problem: str

    @property
    def page_name(self) -> str | None:
        """Path of its first page below /experiments/; None without one."""
        folder = "" if self.path == "." else f"{self.path}/"
        kind = self.values["kind"]
        if self.problem or kind not in FIRST_PAGES:
            return f"{self.path}.html" if kind == "trial" and not self.problem else None
        return f"{folder}{FIRST_PAGES[str(kind)]}.html"


FIRST_PAGES = {kind: pages[0] for kind, pages in PAGES_BY_KIND.items()}
"""first page of each kind of experiment in a folder"""


@dataclass(frozen=True, kw_only=True)
class TablePage:
    """Page of the table, and how many rows there are in all."""

    rows: tuple[ExperimentRow, ...]
    total: int
    query: TableQuery

    @property
    def last(self) -> int:
        """Number of the last row shown, counted from 1."""
        return self.query.offset + len(self.rows)


def parse_table_query(filter_text: str, sort: str, offset: str, limit: str = str(ROWS_PER_PAGE)) -> TableQuery:
    """Parse the parameters of a request; refuse what they cannot mean."""
    query = TableQuery(
        filter=filter_text.strip(),
        sort=sort or DEFAULT_SORT,
        offset=parse_whole_number("offset", offset, 0, MAX_OFFSET),
        limit=parse_whole_number("limit", limit, 1, MAX_ROWS_PER_PAGE),
    )
    if query.sort_column not in COLUMN_BY_NAME:
        names = ", ".join(COLUMN_BY_NAME)
        raise EquipoiseError("option-choice", f"cannot sort by {query.sort_column[:40]!r}", f"sort by one of {names}")
    parse_filter(query.filter)
    return query


def query_table(connection: sqlite3.Connection, query: TableQuery) -> TablePage:
    """Return one page of the table."""
    condition = parse_filter(query.filter)
    (total,) = connection.execute(f"SELECT count(*) FROM entries WHERE {condition.text}", condition.values).fetchone()  # noqa: S608
    text = f"{build_select(query, condition.text)} LIMIT ? OFFSET ?"
    rows = connection.execute(text, (*condition.values, query.limit, query.offset))
    return TablePage(rows=tuple(map(build_row, rows)), total=total, query=query)


def iterate_rows(connection: sqlite3.Connection, query: TableQuery) -> Iterator[ExperimentRow]:
    """Yield all rows of a filter in order, a few at a time in memory."""
    condition = parse_filter(query.filter)
    cursor = connection.execute(build_select(query, condition.text), condition.values)
    while rows := cursor.fetchmany(FETCHED_ROWS):
        yield from map(build_row, rows)


def find_row(connection: sqlite3.Connection, path: str) -> ExperimentRow | None:
    """Return the row of one experiment or record; None if the index has none."""
    row = connection.execute(f"SELECT problem, {COLUMN_LIST} FROM entries WHERE path = ?", (path,)).fetchone()  # noqa: S608
    return None if row is None else build_row(row)


def count_kinds(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the number of rows of each kind."""
    return dict(connection.execute("SELECT kind, count(*) FROM entries GROUP BY kind ORDER BY kind").fetchall())


def list_broken_rows(connection: sqlite3.Connection, limit: int) -> list[ExperimentRow]:
    """Return the rows that could not be read, the newest first."""
    text = f"SELECT problem, {COLUMN_LIST} FROM entries WHERE status = 'unreadable' ORDER BY modified DESC LIMIT ?"  # noqa: S608
    return [build_row(row) for row in connection.execute(text, (limit,))]


def build_select(query: TableQuery, condition: str) -> str:
    """Build the query of sorted rows; missing values come last in both directions."""
    column, direction = query.sort_column, "DESC" if query.is_descending else "ASC"
    order = f"{column} {direction}, path {direction}"
    if column not in ("path", "modified"):  # which are never missing, and sorted by an index
        order = f"{column} IS NULL, {order}"
    return f"SELECT problem, {COLUMN_LIST} FROM entries WHERE {condition} ORDER BY {order}"  # noqa: S608


def build_row(values: tuple[Value, ...]) -> ExperimentRow:
    """Build a row from the values of a query."""
    problem, *columns = values
    by_name = {column.name: value for column, value in zip(INDEX_COLUMNS, columns, strict=True)}
    return ExperimentRow(path=str(by_name["path"]), values=by_name, problem=str(problem))
