"""Server of the site: listens, and answers until it is stopped."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.applications import Starlette

from equipoise.errors import EquipoiseError
from services.http.server import HttpServer, require_unused_port
from services.labelling.server import refuse_by_options
from services.site.application import PartBuilder, SiteApplication, list_part_builders
from services.site.jobs_on_ray.command_forms import load_all_forms
from services.site.settings import SiteSettings

CLOSE_SECONDS = 5.0  # for requests in progress when the server stops
HANDLER_THREADS = 32  # most of them wait, some for minutes; asyncio would have six on two cores


def parse_site_settings(values: dict[str, Any]) -> SiteSettings:
    """Return the settings of `equipoise up`; refuse wrong ones in the words of its options."""
    with refuse_by_options():
        settings = SiteSettings(**values)
        settings.require_tls()
        settings.read_role_keys()
    require_unused_port(settings.host, settings.port)
    return settings


def start_site(settings: SiteSettings, part_builders: list[PartBuilder] | None = None) -> HttpServer:
    """Start the server in a thread of its own, and return it."""
    if not settings.results.is_dir():
        raise EquipoiseError("path-kind", f"cannot serve {settings.results}: it is not a folder")
    application = SiteApplication(settings, list_part_builders() if part_builders is None else part_builders)
    require_unused_port(settings.host, settings.port)
    server = HttpServer(settings.host, settings.port, settings.certfile, settings.keyfile)
    server.start(lambda loop: prepare_application(application, loop))
    return server


def prepare_application(application: SiteApplication, loop: asyncio.AbstractEventLoop) -> Starlette:
    """Return what answers requests, with threads enough that a few slow answers of Ray delay nobody else."""
    loop.set_default_executor(ThreadPoolExecutor(HANDLER_THREADS, thread_name_prefix="site"))
    return application.app


def serve_site(settings: SiteSettings) -> None:
    """Serve the site with these settings until Ctrl-C or SIGTERM."""
    server = start_site(settings)
    print(f"open {settings.url} until Ctrl-C", flush=True)  # noqa: T201
    try:
        load_all_forms()
        threading.Event().wait()
    finally:
        server.close(CLOSE_SECONDS)
