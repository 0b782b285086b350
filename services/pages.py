"""Pages of runs and sweeps as they go: serve run services.pages:build runs=runs port=8080."""

import asyncio
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ray
from pydantic import Field, field_validator
from ray import serve
from ray.serve import Application
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from services.app import format_validation_error, print_address, start_serve_without_proxy
from services.http.auth import WWW_AUTHENTICATE, ApiKeyAuth
from services.http.errors import RequestRejected, page_cannot_be_shown, page_is_unknown
from services.http.responses import compress_response, json_response
from services.http.server import HttpServer
from services.routes.status_page import CONTENT_SECURITY_POLICY
from services.settings import ListenSettings

SHUTDOWN_SECONDS = 10.0  # for requests under way, at the end
INDEX_CACHE_FACTOR = 9  # times what the index took, until it is made again: a tenth of a processor, however many look


class PagesSettings(ListenSettings):
    """What may follow `services.pages:build` as NAME=VALUE, or stand under `args` in YAML."""

    runs: str = Field("runs", min_length=1)
    """folder below which runs and sweeps lie"""
    port: int = Field(8080, ge=1, le=65535)

    @field_validator("runs")
    @classmethod
    def make_runs_absolute(cls, folder: str) -> str:
        """The whole path: a replica works in another folder."""
        return str(Path(folder).absolute())


def build(args: dict[str, Any]) -> Application:
    """The application. Of an argument that cannot be, the command line is told in a sentence."""
    by_hand = not ray.is_initialized()
    try:
        asked = validate_settings(args)
    except ValueError as error:
        if not by_hand:  # within a deployment from YAML, which shows what is raised
            raise
        print(f"error: {format_validation_error(error, PagesSettings)}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    start_serve_without_proxy()
    if by_hand:
        print_address(asked)
    deployment = serve.deployment(PagesServer, name="Pages").options(ray_actor_options={"num_cpus": 0})
    return deployment.bind(asked.model_dump())


def validate_settings(args: dict[str, Any]) -> PagesSettings:
    """What is asked for, if it can be."""
    asked = PagesSettings.model_validate(args)
    try:
        there = Path(asked.runs).is_dir()
    except OSError:
        there = False
    if not there:
        raise ValueError(f"runs={asked.runs} is no folder: give one below which runs lie")
    asked.read_api_keys()
    asked.require_tls()
    return asked


class PagesServer:
    """Makes a page anew when it is looked at; the index, of thousands of runs, only as often as it costs little."""

    def __init__(self, settings: dict[str, Any]) -> None:
        asked = PagesSettings(**settings)
        self.runs_root, self.auth = Path(asked.runs), ApiKeyAuth(asked.read_api_keys())
        routes = [("/", self.serve_index), ("/live", self.serve_index), ("/{name:path}.html", self.serve_page)]
        routes += [("/{name:path}.html/live", self.serve_page)]
        handlers: Any = {RequestRejected: handle_rejected, HTTPException: handle_not_found}
        self.app = Starlette(
            routes=[Route(path, self.auth(one), methods=["GET"]) for path, one in routes], exception_handlers=handlers
        )
        self.index_lock = threading.Lock()
        self.cached_index: tuple[float, Any] = (0.0, None)  # the index, and until when it is new enough
        self.http_server = HttpServer(asked.host, asked.port, asked.certfile, asked.keyfile)
        self.http_server.start(lambda _: self.app)

    async def serve_index(self, request: Request) -> Response:
        """All there is."""
        return await asyncio.to_thread(self._index_response, request)

    async def serve_page(self, request: Request) -> Response:
        """A run's or a sweep's."""
        return await asyncio.to_thread(self._page_response, request)

    def _index_response(self, request: Request) -> Response:
        with self.index_lock:
            begun = time.monotonic()
            until, page = self.cached_index
            if begun >= until:
                page = self._build_index()
                spent = time.monotonic() - begun
                self.cached_index = begun + spent * (1 + INDEX_CACHE_FACTOR), page
        return page_response(page, "live", request)

    def _build_index(self) -> Any:
        from dashboards.build import refresh_page
        from dashboards.experiments import find_experiments
        from dashboards.panels.experiment_index import build_index_page

        found = [refresh_page(one, write=False) for one in find_experiments(self.runs_root)]
        return build_index_page(
            found,
            self.runs_root,
            lambda one: next((f"{name}.html" for name in one.page_names(self.runs_root) if not one.problem), None),
        )

    def _page_response(self, request: Request) -> Response:
        from dashboards.experiments import READ_ERRORS, experiment_at, mark_unreadable
        from dashboards.reports import build_page

        name = request.path_params["name"]
        one = experiment_at(self.runs_root, Path(name).parent)
        if one is None or name not in one.page_names(self.runs_root):
            raise HTTPException(404)
        if one.problem:
            raise page_cannot_be_shown(name, one.problem)
        try:
            page = build_page(one, name.rpartition("/")[2])
        except READ_ERRORS as error:
            raise page_cannot_be_shown(name, mark_unreadable(one, error).problem) from None
        return page_response(page, f"{name.rpartition('/')[2]}.html/live", request)

    def check_health(self) -> None:
        """Raises if nothing answers here any more."""
        if not self.http_server.is_alive:
            raise RuntimeError("the HTTP server has ended")

    def __del__(self) -> None:
        """Ray's way to say that it is over."""
        if http_server := getattr(self, "http_server", None):
            http_server.close(SHUTDOWN_SECONDS)


def page_response(page: Any, live_url: str, request: Request) -> Response:
    """The page, or what is new on it."""
    from dataclasses import replace

    from dashboards.page import build_live_update, render_html

    if request.url.path.endswith("/live"):
        return compress_response(json_response(build_live_update(page)), request)
    headers = {"content-security-policy": CONTENT_SECURITY_POLICY, "cache-control": "no-store"}
    return HTMLResponse(render_html(replace(page, live_url=live_url)), headers=headers)


async def handle_rejected(_: Request, error: Exception) -> Response:
    """A sentence."""
    if not isinstance(error, RequestRejected):
        raise error
    return json_response({"error": error.message}, error.status, WWW_AUTHENTICATE if error.status == 401 else None)


async def handle_not_found(request: Request, error: Exception) -> Response:
    """Where there is nothing."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    return json_response({"error": page_is_unknown(request.url.path).message}, status)
