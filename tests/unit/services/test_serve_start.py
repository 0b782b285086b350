"""What a user reads where the service will answer and where it does."""

import importlib
import logging
import warnings

import pytest

from services.settings import ListenSettings


@pytest.fixture
def serve_start():
    with warnings.catch_warnings():  # Ray's own use of pydantic warns
        warnings.simplefilter("ignore")
        return importlib.import_module("services.serve_start")


@pytest.fixture
def ray_serve_logger():
    logger = logging.getLogger("ray.serve")
    level, handlers = logger.level, logger.handlers
    logger.handlers, logger.level = [], logging.INFO
    yield logger
    logger.handlers, logger.level = handlers, level


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({}, "http://127.0.0.1:8000/"),
        ({"host": "localhost", "port": 8123}, "http://localhost:8123/"),
        ({"host": "::1"}, "http://[::1]:8000/"),
        ({"host": "0.0.0.0", "api_keys_file": "keys"}, "http://127.0.0.1:8000/"),  # noqa: S104
        ({"host": "::", "api_keys_file": "keys"}, "http://[::1]:8000/"),
        ({"certfile": "a.pem", "keyfile": "b.pem"}, "https://127.0.0.1:8000/"),
    ],
)
def test_url_of_a_service_can_be_copied_to_a_client(settings, url):
    assert ListenSettings(**settings).url == url


def test_last_line_names_the_address_once_the_application_is_ready(serve_start, ray_serve_logger, capsys):
    serve_start.announce_address("http://127.0.0.1:8765/")
    ray_serve_logger.info("Adding 1 replica")
    assert capsys.readouterr().err == "will answer at http://127.0.0.1:8765/\n"
    ray_serve_logger.info("Application 'default' is ready at http://127.0.0.1:8000/.")
    assert capsys.readouterr().err == "answers at http://127.0.0.1:8765/ until Ctrl-C\n"
