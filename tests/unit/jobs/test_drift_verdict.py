"""Verdicts on drift from a file or a running service, and what they must have in common with the bundle."""

import io
import json
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import SimpleNamespace
from urllib.error import HTTPError

import pytest

from equipoise.drift.corruptions import CAUSE_NAMES
from equipoise.drift.diagnosis.verdict import DatasetVerdict, StreamVerdict, parse_verdict
from jobs.publishing.drift_verdict import (
    fetch_verdict,
    read_error_message,
    read_verdict,
    require_known_cause,
    require_matching_bundle,
)
from jobs.publishing.service_address import read_api_key
from tests.support.errors import raises_code
from tests.support.manifests import build_manifest

BUNDLE = SimpleNamespace(
    name="pets", version="1" * 12, classes=["cat", "dog"], shape=(3, 32, 32), manifest=build_manifest()
)
GRAY_BUNDLE = SimpleNamespace(**vars(BUNDLE) | {"shape": (1, 32, 32)})
MAX_REPLY_BYTES = 16 * 1024 * 1024


class ReplyHandler(BaseHTTPRequestHandler):
    """Handler that answers every request with the server's reply and records it."""

    def do_GET(self):
        self.server.requests.append((self.path, self.headers["authorization"]))
        status, body = self.server.reply
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Log nothing."""


@pytest.fixture(scope="module")
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), ReplyHandler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def service(server):
    """Return the server without requests, and with its URL."""
    server.requests, server.reply = [], (200, b'{"state": "ok"}')
    server.url = f"http://127.0.0.1:{server.server_port}"
    return server


def build_verdict(**fields):
    return parse_verdict({"state": "drift", "cause": "exposure", "looked_at": 5} | fields)


def build_effect(cause, detail):
    return {"cause": cause, "detail": detail, "value": -1.0}


def test_verdict_of_a_service_is_fetched_for_the_model(service):
    service.reply = 200, json.dumps({"state": "drift", "cause": "blur", "looked_at": 7}).encode()
    verdict = fetch_verdict(service.url, None, BUNDLE)
    assert isinstance(verdict, StreamVerdict) and (verdict.cause, verdict.looked_at) == ("blur", 7)
    assert service.requests == [("/drift?model=pets", None)]


def test_address_has_one_slash_and_an_escaped_name(service):
    fetch_verdict(f"{service.url}/models//", None, SimpleNamespace(**vars(BUNDLE) | {"name": "a b&c"}))
    assert service.requests == [("/models/drift?model=a%20b%26c", None)]


def test_key_is_sent_as_a_bearer_token(service, tmp_path):
    (tmp_path / "key").write_text("\n open-sesame  other\n")
    fetch_verdict(service.url, tmp_path / "key", BUNDLE)
    assert service.requests == [("/drift?model=pets", "Bearer open-sesame")]


@pytest.mark.parametrize(
    ("reply", "code", "message"),
    [
        ((403, b'{"error": "give an API key"}'), "service-refused", "answers 403: give an API key"),
        ((500, b"<html>"), "service-unavailable", "answers 500: Internal Server Error"),
        ((200, b"<html>"), "service-unavailable", "cannot get a verdict from"),
        ((200, b"[]"), "verdict-invalid", "it is not a verdict"),
        ((200, b'{"state": "drift", "cause": "weather"}'), "verdict-invalid", "unknown cause 'weather'"),
    ],
)
def test_reply_without_a_verdict_is_refused(service, reply, code, message):
    service.reply = reply
    with raises_code(code, f"{service.url}/drift?model=pets", message):
        fetch_verdict(service.url, None, BUNDLE)


@pytest.mark.parametrize(("size", "is_accepted"), [(MAX_REPLY_BYTES, True), (MAX_REPLY_BYTES + 1, False)])
def test_reply_has_at_most_16_mebibytes(service, size, is_accepted):
    prefix, suffix = b'{"state": "ok", "why": "', b'"}'
    service.reply = 200, prefix + b"x" * (size - len(prefix) - len(suffix)) + suffix
    if is_accepted:
        assert len(fetch_verdict(service.url, None, BUNDLE).why) == size - len(prefix) - len(suffix)
    else:
        with raises_code("service-unavailable"):
            fetch_verdict(service.url, None, BUNDLE)


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://a:secret@127.0.0.1:1", "url-secret"),
        ("ftp://127.0.0.1", "url-format"),
        ("https://[x", "url-format"),
        ("http://host:port", "url-format"),
        ("http://", "url-format"),
        ("http:///drift", "url-format"),
        ("http://127.0.0.1:99999", "url-format"),
        ("http://127.0.0.1:0", "url-format"),
        ("http://127.0.0.1:1", "service-unavailable"),
    ],
)
def test_url_of_no_service_is_refused(url, code):
    with raises_code(code) as raised:
        fetch_verdict(url, None, BUNDLE)
    assert "secret@" not in str(raised.value)


def test_verdict_is_read_from_a_file(tmp_path):
    path = tmp_path / "verdict.json"
    path.write_text('{"state": "drift", "cause": "noise", "unread": 3}')
    verdict = read_verdict(path)
    assert isinstance(verdict, DatasetVerdict) and (verdict.cause, verdict.unread) == ("noise", 3)
    path.write_text('{"state": "drift"}')
    with raises_code("verdict-invalid", f"--verdict {path}", "unknown cause None"):
        read_verdict(path)
    path.write_text("[]")
    with raises_code("verdict-invalid", f"--verdict {path}: it is not a verdict"):
        read_verdict(path)


def test_first_word_of_a_key_file_is_the_key(tmp_path):
    file = tmp_path / "key"
    for text in ("abc", "abc\ndef", "\t abc def"):
        file.write_text(text)
        assert read_api_key(file) == "abc"


@pytest.mark.parametrize("content", [b"", b" \n", "clé".encode(), b"a\x00b", b"\xff", b"a\x7f"])
def test_file_without_a_key_is_refused(tmp_path, content):
    (tmp_path / "key").write_bytes(content)
    with raises_code("file-damaged", tmp_path / "key"):
        read_api_key(tmp_path / "key")


def test_key_that_is_no_file_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with raises_code("path-kind", path):
            read_api_key(path)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": "too busy"}', "too busy"),
        (b'{"error": 3}', "3"),
        (b'{"detail": "x"}', "Service Unavailable"),
        (b"[1]", "Service Unavailable"),
        (b"3", "Service Unavailable"),
        (b"\xff", "Service Unavailable"),
        (b"", "Service Unavailable"),
    ],
)
def test_reason_of_a_service_is_preferred_to_that_of_http(body, message):
    with HTTPError("http://h", 503, "Service Unavailable", Message(), io.BytesIO(body)) as error:
        assert read_error_message(error) == message


def test_cause_of_a_drift_is_a_known_one():
    for cause in CAUSE_NAMES:
        verdict = build_verdict(cause=cause)
        assert require_known_cause(verdict, "x") is verdict
    for cause in (None, "weather"):
        calm = build_verdict(cause=cause, state="ok")
        assert require_known_cause(calm, "x") is calm
        with raises_code("verdict-invalid", "cannot use x", repr(cause), *CAUSE_NAMES):
            require_known_cause(build_verdict(cause=cause), "x")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"model": "pets", "version": "1" * 12},
        {"classes": {"dog": 3}},
        {"effects": [build_effect("exposure", "darker"), build_effect("tint", "greener")]},
    ],
)
def test_verdict_on_the_bundle_is_accepted(fields):
    require_matching_bundle(build_verdict(**fields), BUNDLE)


@pytest.mark.parametrize(
    ("fields", "mentioned"),
    [
        ({"model": "toys"}, ["model toys", "is pets"]),
        ({"version": "2" * 12}, ["version 222222222222", "is 111111111111"]),
        ({"classes": {"dog": 3, "hen": 1, "ant": 2}}, ["'ant'"]),
        (
            {"effects": [build_effect("exposure", "darker"), build_effect("exposure", "greener")]},
            ["exposure 'greener'"],
        ),
    ],
)
def test_verdict_on_another_bundle_is_refused(fields, mentioned):
    with raises_code("verdict-mismatch", *mentioned):
        require_matching_bundle(build_verdict(**fields), BUNDLE)


def test_gray_images_show_no_change_of_colour():
    require_matching_bundle(build_verdict(effects=[build_effect("exposure", "darker")]), GRAY_BUNDLE)
    with raises_code("verdict-mismatch", "tint 'greener'"):
        require_matching_bundle(build_verdict(effects=[build_effect("tint", "greener")]), GRAY_BUNDLE)
