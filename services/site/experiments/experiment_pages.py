"""Pages of experiments: the table of all, one with its notes and tags, several side by side, and their own pages."""

import asyncio
import csv
import io
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from dashboards.page import Link, to_plain_json
from equipoise.errors import EquipoiseError
from services.http.query_numbers import parse_whole_number
from services.routes.live_pages import answer_live_page, build_experiment_page
from services.site.experiments.comparison import (
    build_curve_panel,
    compare_experiments,
    load_compared,
    select_compared,
)
from services.site.experiments.experiment_notes import (
    add_note,
    add_tag,
    list_notes,
    list_tags,
    remove_note,
    remove_tag,
)
from services.site.experiments.index_columns import INDEX_COLUMNS
from services.site.experiments.index_queries import (
    ExperimentRow,
    TableQuery,
    count_kinds,
    find_row,
    iterate_rows,
    list_broken_rows,
    parse_table_query,
    query_table,
)
from services.site.experiments.index_rows import TRIALS_FOLDER
from services.site.experiments.record_index import RecordIndex
from services.site.experiments.table_view import build_table_view
from services.site.figures import answer_with_figures
from services.site.rendering import NAVIGATION
from services.site.result_paths import resolve_result_path
from services.site.roles import Role
from services.site.site_parts import SiteContext
from services.site.site_routes import SiteRoute, action_route, page_route

MAX_BROKEN_ROWS = 20  # problems listed below the table; a filter shows all
MAX_NOTE_NUMBER = 10**15


class ExperimentPages:
    """Handlers of the pages of experiments."""

    def __init__(self, site: SiteContext, index: RecordIndex) -> None:
        self.site, self.index, self.results = site, index, site.settings.results

    def routes(self) -> list[SiteRoute]:
        """Return the routes of the pages."""
        return [
            page_route("/experiments", self.get_table),
            page_route("/experiments.csv", self.get_csv),
            page_route("/compare", self.get_comparison),
            page_route("/experiments/{name:path}.html", self.get_own_page),
            page_route("/experiments/{name:path}.html/live", self.get_own_page),
            page_route("/experiments/{name:path}", self.get_experiment),
            action_route("/notes/{name:path}", self.post_note, Role.LABEL),
            action_route("/tags/{name:path}", self.post_tag, Role.LABEL),
        ]

    async def get_table(self, request: Request) -> Response:
        """Answer GET /experiments: the table; 204 to an open page that shows this version of it already."""
        self.index.wake()
        shown, state = request.query_params.get("version"), self.index.state
        if shown == str(state.version):
            return Response(status_code=204)
        query = read_table_query(request)
        content = await asyncio.to_thread(self._build_table, query)
        template = "experiment_table.html" if "hx-request" in request.headers else "experiments.html"
        return self.site.renderer.render_page(request, template, **content)

    def _build_table(self, query: TableQuery) -> dict[str, Any]:
        connection, state = self.index.connect(), self.index.state
        view = build_table_view(connection, query_table(connection, query), state)
        broken = list_broken_rows(connection, MAX_BROKEN_ROWS)
        return {"table": view, "kinds": count_kinds(connection), "broken": broken, "results": self.results.name}

    async def get_csv(self, request: Request) -> Response:
        """Answer GET /experiments.csv: all rows of a filter, as they are read."""
        query = read_table_query(request)
        headers = {"content-disposition": 'attachment; filename="experiments.csv"'}
        return StreamingResponse(self._write_csv(query), media_type="text/csv", headers=headers)

    def _write_csv(self, query: TableQuery) -> Iterator[str]:
        """Yield the lines of a CSV; Starlette calls this in threads, so that it has a connection of its own."""
        connection = self.index.open_connection()
        try:
            names = [column.name for column in INDEX_COLUMNS]
            yield ",".join([*names, "problem"]) + "\n"
            for row in iterate_rows(connection, query):
                line = io.StringIO()
                values = [protect_cell(row.values[name]) for name in names]
                csv.writer(line, lineterminator="\n").writerow([*values, protect_cell(row.problem)])
                yield line.getvalue()
        finally:
            connection.close()

    async def get_comparison(self, request: Request) -> Response:
        """Answer GET /compare?path=A&path=B: experiments side by side."""
        paths = select_compared(request.query_params.getlist("path"))
        experiments = await asyncio.to_thread(self._load_compared, paths)
        comparison = compare_experiments(experiments)
        panel = await asyncio.to_thread(build_curve_panel, experiments)
        return await answer_with_figures(
            self.site.renderer, request, "comparison.html", comparison=comparison, panel=panel
        )

    def _load_compared(self, paths: list[str]) -> list[Any]:
        return [load_compared(self.results, self.require_row(path)) for path in paths]

    async def get_own_page(self, request: Request) -> Response:
        """Answer GET /experiments/PATH.html: the page of a run, sweep, check or trial, which updates itself."""
        name = request.path_params["name"]
        resolve_result_path(self.results, name, must_exist=False)
        return await asyncio.to_thread(self._answer_own_page, request, name)

    def _answer_own_page(self, request: Request, name: str) -> Response:
        page = build_experiment_page(self.results, name)
        is_trial = Path(name).parent.name == "trials"
        own = name if is_trial else name.rpartition("/")[0]
        links = [Link(entry.text.lower(), entry.href) for entry in NAVIGATION[:2]]
        links.append(Link("notes and tags", f"/experiments/{quote(own)}"))
        if name.endswith("/curve") and (self.results / own / "statistical.csv").is_file():
            links.append(Link("plan within limits", f"/plan/{quote(own)}"))
        page = replace(page, links=(*links, *page.links))
        return answer_live_page(page, f"{quote(name.rpartition('/')[2])}.html/live", request)

    async def get_experiment(self, request: Request) -> Response:
        """Answer GET /experiments/PATH: what is known of an experiment, with its notes and tags."""
        self.index.wake()
        content = await asyncio.to_thread(self._describe_experiment, request.path_params["name"])
        return await answer_with_figures(self.site.renderer, request, "experiment.html", **content)

    def _describe_experiment(self, path: str) -> dict[str, Any]:
        row, connection = self.require_row(path), self.index.connect()
        return {
            "row": row,
            "facts": {
                column.title: column.format(row.values[column.name])
                for column in INDEX_COLUMNS
                if column.name != "path" and row.values[column.name] not in (None, "")
            },
            "page_name": row.page_name,
            "panel": build_curve_panel([load_compared(self.results, row)]),
            "has_plan": self._has_plan(row),
            "trials_filter": build_trials_filter(row.path) if row.values["kind"] == "sweep" else "",
            "notes": list_notes(connection, row.path),
            "tags": list_tags(connection, row.path),
        }

    def _has_plan(self, row: ExperimentRow) -> bool:
        """Return whether the page of a plan can be opened: not of the results folder itself, which has no name."""
        try:
            has_table = (self.results / row.path / "statistical.csv").is_file()
        except OSError:  # no permission to look, or a name that is too long
            has_table = False
        return row.path != "." and (has_table or row.values["kind"] == "plan")

    async def post_note(self, request: Request) -> Response:
        """Answer POST /notes/PATH: write a note, or remove one."""

        def change(row: ExperimentRow, form: FormData, author: str) -> None:
            if number := str(form.get("remove", "")):
                remove_note(self.index.connect(), row.path, parse_whole_number("remove", number, 0, MAX_NOTE_NUMBER))
            else:
                add_note(self.index.connect(), row.path, str(form.get("text", "")), author)

        return await self._change_experiment(request, change)

    async def post_tag(self, request: Request) -> Response:
        """Answer POST /tags/PATH: set a tag, or remove one."""

        def change(row: ExperimentRow, form: FormData, author: str) -> None:
            if tag := str(form.get("remove", "")):
                remove_tag(self.index.connect(), row.path, tag)
            else:
                add_tag(self.index.connect(), row.path, str(form.get("tag", "")), author)

        return await self._change_experiment(request, change)

    async def _change_experiment(
        self, request: Request, change: Callable[[ExperimentRow, FormData, str], None]
    ) -> Response:
        form, path = await request.form(), request.path_params["name"]
        author = request.state.viewer.name
        await asyncio.to_thread(lambda: change(self.require_row(path), form, author))
        return RedirectResponse(f"/experiments/{quote(path)}", 303)

    def require_row(self, path: str) -> ExperimentRow:
        """Return the row of an experiment; refuse a path that the index does not have.

        An empty path stands for the results themselves: browsers leave out the dot at the end of `/experiments/.`.
        """
        if row := find_row(self.index.connect(), path or "."):
            return row
        remedy = "the table lists all" if self.index.is_complete else "the index is still being built: try again"
        raise EquipoiseError("path-missing", f"cannot find the experiment {path[:200]!r}", remedy)


def build_trials_filter(path: str) -> str:
    """Return the filter of the trials of one sweep: of all paths, those that begin with its folder."""
    folder = TRIALS_FOLDER if path == "." else f"{path}/{TRIALS_FOLDER}"
    return shlex.join(["kind=trial", f"path>={folder}/", f"path<{folder}0"])  # a zero is the letter after a slash


def read_table_query(request: Request) -> TableQuery:
    """Read the filter, the order and the place in the table from the query of a request."""
    values = request.query_params
    usual = TableQuery()
    return parse_table_query(
        values.get("filter", ""),
        values.get("sort", ""),
        values.get("offset") or str(usual.offset),
        values.get("limit") or str(usual.limit),
    )


def protect_cell(value: Any) -> Any:
    """Return the value of a cell of a CSV; a text that spreadsheets would take for a formula gets an apostrophe."""
    value = to_plain_json(value)
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
