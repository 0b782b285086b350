"""Server of `equipoise label`: checks what it is given, listens, and answers until it is stopped."""

import threading
from pathlib import Path

from pydantic import Field

from equipoise.labels.guesses import read_guesses
from equipoise.labels.store import LabelStore
from services.http.server import HttpServer, require_unused_port
from services.labelling.application import LabellingApplication
from services.labelling.service_guesses import ServiceGuesser
from services.labelling.session import LabelSession
from services.settings import ListenSettings

CLOSE_SECONDS = 5.0  # for requests in progress when the server stops


class LabellingSettings(ListenSettings):
    """What `equipoise label` serves, and where."""

    images: Path
    """folder of the pictures"""
    labels: Path
    """folder of the labels"""
    kind: str
    """boxes or class"""
    classes: tuple[str, ...] = ()
    guesses: Path | None = None
    """file with first guesses"""
    service: str | None = None
    """URL of a prediction service that is asked for first guesses"""
    service_key: str | None = Field(None, repr=False)
    """API key of that service"""


def build_session(settings: LabellingSettings) -> LabelSession:
    """Build the session of a command; its classes are those of the guesses, unless some are given or stored."""
    guesses = read_guesses(settings.guesses) if settings.guesses else {}
    store = LabelStore(settings.labels)
    has_classes = bool(settings.classes or store.read_classes()[1])
    guessed = dict.fromkeys(name for guess in guesses.values() for name in guess.class_names())
    store.add_classes(settings.kind, settings.classes if has_classes else [*guessed])
    guesser = ServiceGuesser(settings.service, settings.service_key) if settings.service else None
    return LabelSession(
        images=settings.images,
        store=store,
        kind=settings.kind,
        guesses=guesses,
        guesser=guesser,
        adds_guessed_classes=not has_classes,
    )


def start_labelling(settings: LabellingSettings) -> HttpServer:
    """Start the server in a thread of its own, and return it."""
    api_keys = settings.read_api_keys()
    settings.require_tls()
    session = build_session(settings)
    require_unused_port(settings.host, settings.port)
    server = HttpServer(settings.host, settings.port, settings.certfile, settings.keyfile)
    application = LabellingApplication(session, api_keys)
    server.start(lambda _: application.app)
    return server


def serve_until_stopped(settings: LabellingSettings) -> None:
    """Serve the page until Ctrl-C or SIGTERM."""
    server = start_labelling(settings)
    print(f"label at {settings.url} until Ctrl-C", flush=True)  # noqa: T201
    try:
        threading.Event().wait()
    finally:
        server.close(CLOSE_SECONDS)
