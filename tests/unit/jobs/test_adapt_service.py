"""jobs.adapt asks a service for its verdict, and says in one sentence why it cannot."""

from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from equipoise.bundle.bundle import load_bundle
from jobs.adapt import AdaptOptions, load_verdict
from tests.support.adapt_command import run_adapt
from tests.support.errors import raises_code


class FixedResponseHandler(BaseHTTPRequestHandler):
    """Handler that answers every request with the server's response and records the requested paths."""

    def do_GET(self):
        self.server.requested_paths.append(self.path)
        status, body = self.server.response
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Log nothing."""


@pytest.fixture
def fake_service():
    with HTTPServer(("127.0.0.1", 0), FixedResponseHandler) as server:
        server.requested_paths = []
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("response", "status", "message"),
    [
        ((401, b'{"error": "give an API key"}'), 2, "answers 401: give an API key"),
        ((503, b"<html>"), 1, "answers 503: Service Unavailable"),
        ((200, b"<html>"), 1, "cannot get a verdict"),
        ((200, b"[]"), 2, "is not a verdict"),
    ],
)
def test_response_without_a_verdict_is_reported_in_one_sentence(
    digits_bundle, fake_service, capsys, response, status, message
):
    fake_service.response = response
    address = f"http://127.0.0.1:{fake_service.server_port}"
    assert run_adapt("--bundle", digits_bundle, "--service", address, "--dry-run") == status
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert fake_service.requested_paths == ["/drift?model=digits"]


@pytest.mark.parametrize(
    ("service", "status", "code"),
    [
        ("http://127.0.0.1:1", 1, "service-unavailable"),
        ("http://h:x", 2, "url-format"),
        ("http://a b", 2, "url-format"),
        ("nowhere", 2, "url-format"),
    ],
)
def test_unreachable_service_is_reported_in_one_sentence(digits_bundle, capsys, service, status, code):
    assert run_adapt("--bundle", digits_bundle, "--service", service, "--dry-run") == status
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and error.endswith(f"[{code}]\n")


@pytest.mark.parametrize(
    ("service", "message"),
    [
        ("http://name:open-sesame@127.0.0.1:9", "has a password in it"),
        ("file:///etc/hostname", "is not an HTTP URL; give one such as"),
        ("", "is not an HTTP URL; give one such as"),
        ("http://[::1", "cannot use --service"),
    ],
)
def test_invalid_service_url_is_refused_without_its_password(digits_bundle, capsys, service, message):
    assert run_adapt("--bundle", digits_bundle, "--service", service, "--dry-run") == 2
    error = capsys.readouterr().err
    assert message in error and "open-sesame" not in error and error.count("\n") == 1


@pytest.mark.parametrize("key", ["none", ".", "odd"])
def test_unreadable_key_file_is_named_without_its_content(digits_bundle, tmp_path, capsys, key):
    (tmp_path / "odd").write_bytes(b"open-sesame\xff")
    service = ("--service", "http://127.0.0.1:9", "--key", tmp_path / key)
    assert run_adapt("--bundle", digits_bundle, *service, "--dry-run") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: cannot read --key {tmp_path / key}") and "open-sesame" not in error


def test_verdict_needs_one_source_and_a_key_that_is_not_empty(digits_bundle, tmp_path):
    options = AdaptOptions(bundle=str(digits_bundle))
    with raises_code("option-missing", "--service", "--verdict"):
        load_verdict(options, load_bundle(digits_bundle))
    (tmp_path / "key").touch()
    with raises_code("file-damaged", "--key"):
        load_verdict(replace(options, service="http://127.0.0.1:1", key=tmp_path / "key"), load_bundle(digits_bundle))
