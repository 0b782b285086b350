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

from services.app import announced, sentence, without_proxy
from services.http import errors
from services.http.auth import ASKS, Guard
from services.http.errors import Refused
from services.http.responses import answer, compressed
from services.http.server import Listener
from services.routes.status_page import POLICY
from services.settings import Reached

SECONDS = 10.0  # for requests under way, at the end
IDLE = 9  # times what the index took, until it is made again: a tenth of a processor, however many look


class Asked(Reached):
    """What may follow `services.pages:build` as NAME=VALUE, or stand under `args` in YAML."""

    runs: str = Field("runs", min_length=1)
    """folder below which runs and sweeps lie"""
    port: int = Field(8080, ge=1, le=65535)

    @field_validator("runs")
    @classmethod
    def absolute(cls, path: str) -> str:
        """The whole path: a replica works in another folder."""
        return str(Path(path).absolute())


def build(args: dict[str, Any]) -> Application:
    """The application. Of an argument that cannot be, the command line is told in a sentence."""
    by_hand = not ray.is_initialized()
    try:
        asked = checked(args)
    except ValueError as error:
        if not by_hand:  # within a deployment from YAML, which shows what is raised
            raise
        print(f"error: {sentence(error, Asked)}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    without_proxy()
    if by_hand:
        announced(asked)
    deployment = serve.deployment(Pages, name="Pages").options(ray_actor_options={"num_cpus": 0})
    return deployment.bind(asked.model_dump())


def checked(args: dict[str, Any]) -> Asked:
    """What is asked for, if it can be."""
    asked = Asked.model_validate(args)
    try:
        there = Path(asked.runs).is_dir()
    except OSError:
        there = False
    if not there:
        raise ValueError(f"runs={asked.runs} is no folder: give one below which runs lie")
    asked.secrets()
    asked.require_tls()
    return asked


class Pages:
    """Makes a page anew when it is looked at; the index, of thousands of runs, only as often as it costs little."""

    def __init__(self, settings: dict[str, Any]) -> None:
        asked = Asked(**settings)
        self.root, self.guard = Path(asked.runs), Guard(asked.secrets())
        routes = [("/", self.index), ("/live", self.index), ("/{name:path}.html", self.page)]
        routes += [("/{name:path}.html/live", self.page)]
        handlers: Any = {Refused: refused, HTTPException: missing}
        self.app = Starlette(
            routes=[Route(path, self.guard(one), methods=["GET"]) for path, one in routes], exception_handlers=handlers
        )
        self.lock = threading.Lock()
        self.made: tuple[float, Any] = (0.0, None)  # the index, and until when it is new enough
        self.listener = Listener(asked.host, asked.port, asked.certfile, asked.keyfile)
        self.listener.start(lambda _: self.app)

    async def index(self, request: Request) -> Response:
        """All there is."""
        return await asyncio.to_thread(self._index, request)

    async def page(self, request: Request) -> Response:
        """A run's or a sweep's."""
        return await asyncio.to_thread(self._page, request)

    def _index(self, request: Request) -> Response:
        with self.lock:
            begun = time.monotonic()
            until, page = self.made
            if begun >= until:
                page = self._all()
                spent = time.monotonic() - begun
                self.made = begun + spent * (1 + IDLE), page
        return shown(page, "live", request)

    def _all(self) -> Any:
        from dashboards import build, experiments
        from dashboards.panels import experiment_index as index

        found = [build.drawn(one, new=False) for one in experiments.found(self.root)]
        return index.page(
            found, self.root, lambda one: next((f"{name}.html" for name in one.names(self.root) if not one.why), None)
        )

    def _page(self, request: Request) -> Response:
        from dashboards import experiments
        from dashboards import reports as pages

        name = request.path_params["name"]
        one = experiments.below(self.root, Path(name).parent)
        if one is None or name not in one.names(self.root):
            raise HTTPException(404)
        if one.why:
            raise errors.page_cannot_be_shown(name, one.why)
        try:
            page = pages.of(one, name.rpartition("/")[2])
        except experiments.FOREIGN as error:
            raise errors.page_cannot_be_shown(name, experiments.foreign(one, error).why) from None
        return shown(page, f"{name.rpartition('/')[2]}.html/live", request)

    def check_health(self) -> None:
        """Raises if nothing answers here any more."""
        if not self.listener.alive:
            raise RuntimeError("the HTTP server has ended")

    def __del__(self) -> None:
        """Ray's way to say that it is over."""
        if listener := getattr(self, "listener", None):
            listener.close(SECONDS)


def shown(page: Any, live: str, request: Request) -> Response:
    """The page, or what is new on it."""
    from dataclasses import replace

    from dashboards.page import changes, html

    if request.url.path.endswith("/live"):
        return compressed(answer(changes(page)), request)
    headers = {"content-security-policy": POLICY, "cache-control": "no-store"}
    return HTMLResponse(html(replace(page, live=live)), headers=headers)


async def refused(_: Request, error: Exception) -> Response:
    """A sentence."""
    if not isinstance(error, Refused):
        raise error
    return answer({"error": error.sentence}, error.status, ASKS if error.status == 401 else None)


async def missing(request: Request, error: Exception) -> Response:
    """Where there is nothing."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    return answer({"error": errors.page_is_unknown(request.url.path).sentence}, status)
