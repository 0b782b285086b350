"""The client of Ray's dashboard against a real HTTP server in its place, and the token that it sends."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from equipoise.errors import EquipoiseError
from jobs.site_ray.ray_dashboard import RayDashboard, read_client_token


class Answers(BaseHTTPRequestHandler):
    """Answers with the token, an error with a traceback, or text."""

    def do_GET(self):
        status, body = {
            "/token": (200, f'{{"token": "{self.headers.get("authorization")}"}}'),
            "/failing": (500, "Traceback (most recent call last):\n  File\nValueError: no such job\n"),
        }.get(self.path, (200, "plain"))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def url():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_token_is_sent_and_answers_are_parsed(url):
    assert RayDashboard(url, "secret").request("GET", "/token") == {"token": "Bearer secret"}
    assert RayDashboard(url).request("GET", "/token") == {"token": "None"}
    assert RayDashboard(url).request("GET", "/") == "plain"


def test_an_error_is_told_by_its_last_line(url):
    with pytest.raises(EquipoiseError, match=r"answered 500: ValueError: no such job$"):
        RayDashboard(url).request("GET", "/failing")


def test_a_dashboard_that_does_not_answer_is_told_and_not_ready():
    dashboard = RayDashboard("http://127.0.0.1:1", "secret")
    with pytest.raises(EquipoiseError, match=r"cannot reach Ray at http://127.0.0.1:1") as caught:
        dashboard.request("GET", "/api/jobs/")
    assert caught.value.code == "cluster-unreachable" and "secret" not in str(caught.value)
    assert not dashboard.is_ready()


def test_the_token_is_the_one_that_rays_own_clients_send(tmp_path):
    file = tmp_path / "token"
    file.write_text("from-file\n")
    assert read_client_token({"RAY_AUTH_TOKEN": "x"}) is None
    assert read_client_token({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "x\n"}) == "x"
    assert read_client_token({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(file)}) == "from-file"
    with pytest.raises(EquipoiseError, match="cannot read the token of Ray"):
        read_client_token({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")})
