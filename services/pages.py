"""Serve live pages of training runs and sweeps: serve run services.pages:build runs=runs port=8080."""

import asyncio
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from pydantic import Field, ValidationError, field_validator
from ray import serve
from ray.serve import Application
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from equipoise.command_line import REFUSED, print_error
from equipoise.errors import EquipoiseError
from services.app import format_settings_error
from services.http.auth import ApiKeyAuth, build_challenge
from services.http.errors import RequestRejected, page_is_unknown
from services.http.responses import json_response
from services.http.server import HttpServer
from services.serve_start import announce_address, start_serve_without_proxy
from services.settings import ListenSettings

SHUTDOWN_SECONDS = 10.0  # for open requests when the server stops
INDEX_CACHE_FACTOR = 9  # cached for 9 times its build time: at most a tenth of a processor, however many clients


class PagesSettings(ListenSettings):
    """Arguments of `services.pages:build`, as NAME=VALUE on the command line or under `args` in YAML."""

    runs: str = Field("runs", min_length=1)
    """folder that holds runs and sweeps, at any depth"""
    port: int = Field(8080, ge=1, le=65535)
    """TCP port to listen on"""

    @field_validator("runs")
    @classmethod
    def make_runs_absolute(cls, folder: str) -> str:
        """Make the path absolute, because a replica has another working directory."""
        return str(Path(folder).absolute())


def build(args: dict[str, Any]) -> Application:
    """Build the application; on a wrong argument the command line prints one sentence and exits with status 2."""
    from_command_line = not ray.is_initialized()
    try:
        settings = validate_settings(args)
    except (EquipoiseError, ValidationError) as error:
        if not from_command_line:  # a deployment from YAML shows the exception itself
            raise
        sys.exit(print_error(format_settings_error(error, PagesSettings), REFUSED))
    start_serve_without_proxy(settings.host, settings.port, settings.url)
    if from_command_line:
        announce_address(settings.url)
    deployment = serve.deployment(PagesServer, name="Pages").options(ray_actor_options={"num_cpus": 0})
    return deployment.bind(settings.model_dump())


def validate_settings(args: dict[str, Any]) -> PagesSettings:
    """Return the settings; refuse wrong arguments and files that cannot be used."""
    settings = PagesSettings.model_validate(args)
    try:
        is_folder = Path(settings.runs).is_dir()
    except OSError:
        is_folder = False
    if not is_folder:
        raise EquipoiseError(
            "path-kind", f"runs={settings.runs} is not a folder", "give the folder that holds the runs"
        )
    settings.read_api_keys()
    settings.require_tls()
    return settings


class PagesServer:
    """HTTP server that builds each page on request; the index, which may list thousands of runs, is cached."""

    def __init__(self, settings: dict[str, Any]) -> None:
        parsed = PagesSettings(**settings)
        self.runs_root, self.auth = Path(parsed.runs), ApiKeyAuth(parsed.read_api_keys())
        routes = [
            Route("/", self.serve_index),
            Route("/live", self.serve_index),
            Route("/{name:path}.html", self.serve_page),
            Route("/{name:path}.html/live", self.serve_page),
        ]
        handlers: Any = {RequestRejected: handle_rejected, HTTPException: handle_not_found}
        self.app = Starlette(routes=[*map(self.auth.protect, routes)], exception_handlers=handlers)
        self.index_lock = threading.Lock()
        self.cached_index: tuple[float, Any] = (0.0, None)  # time until which the index may be reused, and the index
        self.http_server = HttpServer(parsed.host, parsed.port, parsed.certfile, parsed.keyfile)
        self.http_server.start(lambda _: self.app)

    async def serve_index(self, request: Request) -> Response:
        """Answer with the index of all runs and sweeps."""
        return await asyncio.to_thread(self._index_response, request)

    async def serve_page(self, request: Request) -> Response:
        """Answer with a page of one run or sweep."""
        return await asyncio.to_thread(self._page_response, request)

    def _index_response(self, request: Request) -> Response:
        from services.routes.live_pages import answer_live_page

        with self.index_lock:
            started_at = time.monotonic()
            expires_at, page = self.cached_index
            if started_at >= expires_at:
                page = self._build_index()
                build_seconds = time.monotonic() - started_at
                self.cached_index = started_at + build_seconds * (1 + INDEX_CACHE_FACTOR), page
        return answer_live_page(page, "live", request)

    def _build_index(self) -> Any:
        from dashboards.build import refresh_page
        from dashboards.experiments import find_experiments
        from dashboards.panels.experiment_index import build_index_page

        experiments = [refresh_page(experiment, write=False) for experiment in find_experiments(self.runs_root)]
        return build_index_page(
            experiments,
            self.runs_root,
            lambda page: next((f"{name}.html" for name in page.page_names(self.runs_root) if not page.problem), None),
        )

    def _page_response(self, request: Request) -> Response:
        from dashboards.page import INDEX_LINK_TEXT, Link
        from services.routes.live_pages import answer_live_page, build_experiment_page

        name = request.path_params["name"]
        page = build_experiment_page(self.runs_root, name)
        page = replace(page, links=(Link(INDEX_LINK_TEXT, "../" * name.count("/") or "./"), *page.links))
        return answer_live_page(page, f"{name.rpartition('/')[2]}.html/live", request)

    def check_health(self) -> None:
        """Raise RuntimeError if the HTTP server has stopped; Ray then replaces this replica."""
        if not self.http_server.is_alive:
            raise RuntimeError("the HTTP server has stopped")

    def __del__(self) -> None:
        """Stop the server; Ray deletes the object when it shuts the replica down."""
        if http_server := getattr(self, "http_server", None):
            http_server.close(SHUTDOWN_SECONDS)


async def handle_rejected(request: Request, error: Exception) -> Response:
    """Answer a rejected request with its HTTP status and a sentence as JSON."""
    if not isinstance(error, RequestRejected):
        raise error
    headers = build_challenge(request) if error.status == 401 else None
    return json_response({"error": error.message}, error.status, headers)


async def handle_not_found(request: Request, error: Exception) -> Response:
    """Answer a request for an unknown page with a sentence as JSON."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    return json_response({"error": page_is_unknown(request.url.path).message}, status)
