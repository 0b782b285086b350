"""Server of `equipoise label`: checks what it is given, listens, and answers until it is stopped."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from equipoise.errors import EquipoiseError
from equipoise.labels.captured_guesses import CapturedGuesser
from equipoise.labels.guesses import read_guesses
from equipoise.labels.store import LabelStore
from services.http.server import HttpServer, require_unused_port
from services.labelling.application import LabellingApplication
from services.labelling.bundle_guesses import BundleGuesser
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
    bundle: str | None = None
    """folder or URL of a published model that guesses"""
    guess_ahead: bool = True
    """ask the model about all pictures, not only about those that are opened"""
    service_key: str | None = Field(None, repr=False)
    """API key of that service"""


def parse_settings(values: dict[str, Any]) -> LabellingSettings:
    """Return the settings of a command; refuse wrong ones in the words of its options."""
    with refuse_by_options():
        settings = LabellingSettings(**values)
        settings.require_tls()
        settings.read_api_keys()
    return settings


@contextmanager
def refuse_by_options() -> Iterator[None]:
    """Raise what the block finds wrong with settings in the words of the command's options."""
    try:
        yield
    except ValidationError as error:
        cause = error.errors()[0].get("ctx", {}).get("error")
        if not isinstance(cause, EquipoiseError):
            raise
        raise name_options(cause) from None
    except EquipoiseError as error:
        raise name_options(error) from None


def name_options(error: EquipoiseError) -> EquipoiseError:
    """Return an error about arguments NAME=VALUE with the options of the command instead."""
    texts = [error.problem, error.remedy]
    for name in ("api_keys_file", "certfile", "keyfile"):
        texts = [text.replace(f"{name}=", f"--{name.replace('_', '-')} ") for text in texts]
    return EquipoiseError(error.code, *texts)


def build_session(settings: LabellingSettings) -> LabelSession:
    """Build the session of a command; its classes are those of the guesses, unless some are given or stored."""
    guesses = read_guesses(settings.guesses) if settings.guesses else {}
    store = LabelStore(settings.labels)
    has_classes = bool(settings.classes or store.read_classes()[1])
    guessed = dict.fromkeys(name for guess in guesses.values() for name in guess.class_names())
    guesser = build_guesser(settings)
    if isinstance(guesser, BundleGuesser):
        guessed = dict.fromkeys(guesser.classes)
    elif isinstance(guesser, CapturedGuesser):
        guessed |= dict.fromkeys(guesser.list_classes(settings.images))
    store.add_classes(settings.kind, settings.classes if has_classes else [*guessed])
    return LabelSession(
        images=settings.images,
        store=store,
        kind=settings.kind,
        guesses=guesses,
        guesser=guesser,
        adds_guessed_classes=not has_classes,
    )


def build_guesser(settings: LabellingSettings) -> ServiceGuesser | BundleGuesser | CapturedGuesser:
    """Return the model that gives first guesses; without one, captures have what their service answered."""
    if settings.service:
        return ServiceGuesser(settings.service, settings.service_key)
    return BundleGuesser(settings.bundle, settings.kind) if settings.bundle else CapturedGuesser()


def start_labelling(settings: LabellingSettings) -> HttpServer:
    """Start the server in a thread of its own, and return it."""
    api_keys = settings.read_api_keys()
    session = build_session(settings)
    require_unused_port(settings.host, settings.port)
    server = HttpServer(settings.host, settings.port, settings.certfile, settings.keyfile)
    application = LabellingApplication(session, api_keys)
    server.start(lambda _: application.app)
    if settings.guess_ahead:
        ahead = threading.Thread(target=session.guess_ahead, args=(lambda: not server.is_alive,), daemon=True)
        ahead.start()
    return server


def serve_until_stopped(values: dict[str, Any]) -> None:
    """Serve the page with these settings until Ctrl-C or SIGTERM."""
    settings = parse_settings(values)
    server = start_labelling(settings)
    print(f"label at {settings.url} until Ctrl-C", flush=True)  # noqa: T201
    try:
        threading.Event().wait()
    finally:
        server.close(CLOSE_SECONDS)
