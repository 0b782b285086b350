"""Calls to a service: past a proxy, and what becomes of answers that are none."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from services.site.models.deployments.service_calls import ServiceCalls
from tests.support.errors import raises_code


class Answers(BaseHTTPRequestHandler):
    """Answers predictions as the path of the model says."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write({"good": b'{"label": "7"}', "list": b"[1]"}.get(self.path.split("/")[2], b"{"))

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def url():
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_a_service_on_this_machine_is_asked_past_a_proxy(url, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert ServiceCalls(url=url, model="good", key="secret").predict(b"x", "text/plain") == {"label": "7"}


@pytest.mark.parametrize("model", ["list", "damaged"])
def test_an_answer_that_is_none_is_told_with_its_address(url, model):
    with raises_code("service-unavailable", f"{url}models/{model}/predict"):
        ServiceCalls(url=url, model=model).predict(b"x", "text/plain")
