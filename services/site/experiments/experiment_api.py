"""Endpoints of the API about experiments."""

import asyncio
from collections.abc import Sequence
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from dashboards.page import to_plain_json
from equipoise.storage.json_decoding import decode_json_bytes
from services.http.responses import typed_response
from services.site.experiments.comparison import ComparedRow, compare_experiments, load_compared, select_compared
from services.site.experiments.experiment_notes import add_note, add_tag, list_notes, list_tags, remove_tag
from services.site.experiments.experiment_pages import ExperimentPages, read_table_query
from services.site.experiments.index_queries import MAX_ROWS_PER_PAGE, ExperimentRow, query_table
from services.site.experiments.message_types import (
    ComparedRowReply,
    ComparedValueReply,
    ComparisonReply,
    ExperimentListReply,
    ExperimentReply,
    NoteReply,
    NoteRequest,
    NotesReply,
    TagReply,
)
from services.site.roles import Role
from services.site.site_routes import ApiDescription, SiteRoute, api_route

TABLE_PARAMETERS = {
    "filter": "terms such as lr>0.05 workload=digits status~failed tag=baseline, or words of a name",
    "sort": "name of a column, largest first after a minus sign; -modified if left out",
    "offset": "rows to leave out; 0 if left out",
    "limit": f"at most {MAX_ROWS_PER_PAGE} rows; 50 if left out",
}


class ExperimentApi:
    """Handlers of /api/experiments, /api/comparison and /api/notes."""

    def __init__(self, pages: ExperimentPages) -> None:
        self.pages, self.index = pages, pages.index

    def routes(self) -> list[SiteRoute]:
        """Return the routes of the endpoints, with their descriptions."""
        notes = ApiDescription(
            summary="notes and tags of an experiment", returns="all of them", reply=NotesReply, rejections=(404,)
        )
        return [
            api_route("GET /api/experiments", self.get_experiments, Role.VIEW, ApiDescription(
                summary="experiments and trials below the results folder",
                returns="some of them, and how many there are", reply=ExperimentListReply, query=TABLE_PARAMETERS,
                rejections=(400,))),
            api_route("GET /api/experiments/{name:path}", self.get_experiment, Role.VIEW, ApiDescription(
                summary="one experiment or trial", returns="it", reply=ExperimentReply, rejections=(404,))),
            api_route("GET /api/comparison", self.get_comparison, Role.VIEW, ApiDescription(
                summary="several experiments side by side", returns="settings and results with their differences",
                reply=ComparisonReply, query={"path": "path of an experiment, given two to six times"},
                rejections=(400, 404))),
            api_route("GET /api/notes/{name:path}", self.get_notes, Role.VIEW, notes),
            api_route("POST /api/notes/{name:path}", self.post_notes, Role.LABEL, ApiDescription(
                summary="write a note, set and remove tags", returns="all notes and tags", reply=NotesReply,
                body=NoteRequest, rejections=(400, 404))),
        ]  # fmt: skip

    async def get_experiments(self, request: Request) -> Response:
        """Answer GET /api/experiments: a page of the table."""
        self.index.wake()
        query = read_table_query(request)
        page = await asyncio.to_thread(lambda: query_table(self.index.connect(), query))
        experiments = [*map(describe_experiment, page.rows)]
        is_complete = self.index.is_complete
        return typed_response(ExperimentListReply(experiments=experiments, total=page.total, is_complete=is_complete))

    async def get_experiment(self, request: Request) -> Response:
        """Answer GET /api/experiments/PATH: one row."""
        self.index.wake()
        row = await asyncio.to_thread(self.pages.require_row, request.path_params["name"])
        return typed_response(describe_experiment(row))

    async def get_comparison(self, request: Request) -> Response:
        """Answer GET /api/comparison?path=A&path=B: settings and results side by side."""
        paths = select_compared(request.query_params.getlist("path"))
        results = self.pages.results
        experiments = await asyncio.to_thread(
            lambda: [load_compared(results, self.pages.require_row(path)) for path in paths]
        )
        comparison = compare_experiments(experiments)
        settings, outcomes = describe_rows(comparison.settings), describe_rows(comparison.results)
        return typed_response(ComparisonReply(paths=[*comparison.names], settings=settings, results=outcomes))

    async def get_notes(self, request: Request) -> Response:
        """Answer GET /api/notes/PATH: notes and tags of an experiment."""
        return typed_response(await asyncio.to_thread(self._list_notes, request.path_params["name"]))

    async def post_notes(self, request: Request) -> Response:
        """Answer POST /api/notes/PATH: write a note, set and remove tags."""
        body = decode_json_bytes(
            await request.body(), NoteRequest, code="option-format", problem="cannot read the note in the request"
        )
        path, author = request.path_params["name"], request.state.viewer.name
        await asyncio.to_thread(self._change_notes, path, body, author)
        return typed_response(await asyncio.to_thread(self._list_notes, path))

    def _change_notes(self, path: str, body: NoteRequest, author: str) -> None:
        """Apply a request; all of it or, if a tag or the note is refused, nothing."""
        row, connection = self.pages.require_row(path), self.index.connect()
        connection.execute("BEGIN IMMEDIATE")
        try:
            if body.text.strip():
                add_note(connection, row.path, body.text, author)
            for tag in body.add_tags:
                add_tag(connection, row.path, tag, author)
            for tag in body.remove_tags:
                remove_tag(connection, row.path, tag)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def _list_notes(self, path: str) -> NotesReply:
        row, connection = self.pages.require_row(path), self.index.connect()
        return NotesReply(
            path=row.path,
            notes=[NoteReply(**vars(note)) for note in list_notes(connection, row.path)],
            tags=[TagReply(**vars(tag)) for tag in list_tags(connection, row.path)],
        )


def describe_experiment(row: ExperimentRow) -> ExperimentReply:
    """Describe a row for the API; what is no number in JSON becomes null."""
    page = f"/experiments/{quote(row.page_name)}" if row.page_name else None
    return ExperimentReply(**to_plain_json(row.values), problem=row.problem, page=page)


def describe_rows(rows: Sequence[ComparedRow]) -> list[ComparedRowReply]:
    """Describe rows of a comparison for the API."""
    return [
        ComparedRowReply(
            name=row.name,
            values=[
                ComparedValueReply(**to_plain_json({"value": each.value, "difference": each.difference}))
                for each in row.values
            ],
            differs=row.differs,
        )
        for row in rows
    ]
