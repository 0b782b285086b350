"""Service with API keys, TLS, several models, a canary, a bundle behind a link, a short queue and an access log."""

import io
import json
import ssl
import subprocess
import threading
from collections import Counter
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jobs.cluster.processes import find_free_ports, wait_until
from tests.support.ray_cluster import PATIENCE_SECONDS

API_KEY, MAX_WAITING = "open-sesame", 2


def render_random_png(seed=0, size=(16, 16)):
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, size).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


@dataclass(frozen=True)
class SecuredService:
    """Service behind TLS and API keys, and what its clients must know."""

    port: int
    ssl_context: ssl.SSLContext
    access_log: Path
    bundle_link: Path
    """a link to the bundle of the model `watched`"""

    def request(self, method, path, body=None, key=API_KEY, **headers):
        """Return status, headers and body of the reply."""
        connection = HTTPSConnection("127.0.0.1", self.port, timeout=30, context=self.ssl_context)
        try:
            all_headers = {"Content-Type": "image/png"} | ({"Authorization": f"Bearer {key}"} if key else {}) | headers
            connection.request(method, path, body, all_headers)
            reply = connection.getresponse()
            return reply.status, dict(reply.getheaders()), reply.read()
        finally:
            connection.close()

    def read_version(self, name):
        """Return the version of the bundle that answers for a model."""
        _, _, body = self.request("GET", "/models")
        return next(model["current"]["version"] for model in json.loads(body)["models"] if model["name"] == name)


@pytest.fixture(scope="module")
def secured_service(service_slot, cluster, bundles, tmp_path_factory):
    service_slot.clear()
    folder = tmp_path_factory.mktemp("guarded")
    (port,) = find_free_ports(1)
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-days", "1", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    (folder / "keys").write_text(f"another\n{API_KEY}\n")
    (folder / "keys").chmod(0o600)
    (folder / "watched").symlink_to(bundles[0])
    model_specs = {
        "plain": {"bundle": str(bundles[0]), "canary": str(bundles[1]), "share": 0.5},
        "watched": {"bundle": str(folder / "watched")},
    }
    files = {
        "api_keys_file": "keys",
        "certfile": "cert.pem",
        "keyfile": "key.pem",
        "access_log": "access.jsonl",
    }
    arguments = {name: str(folder / file) for name, file in files.items()}
    arguments |= {"port": port, "reload_seconds": 0.2, "limits": {"waiting": MAX_WAITING}}
    cluster.deploy(
        {
            "proxy_location": "Disabled",
            "applications": [
                {
                    "name": "guarded",
                    "route_prefix": "/",
                    "import_path": "services.app:build",
                    "args": arguments,
                    "deployments": [{"name": "Predictor", "user_config": model_specs}],
                }
            ],
        }
    )
    ssl_context = ssl.create_default_context(cafile=str(folder / "cert.pem"))
    service = SecuredService(port, ssl_context, folder / "access.jsonl", folder / "watched")

    def is_ready():
        try:
            return service.request("GET", "/ready", key=None)[0] == 200
        except OSError:
            return False

    wait_until(is_ready, PATIENCE_SECONDS)
    yield service
    cluster.shut_down_serve()


@pytest.mark.parametrize("key", [None, "", "open-sesam", "another\nopen-sesame", "Ж"])
def test_without_valid_key_only_health_is_answered(secured_service, key):
    headers = {} if key is None else {"X-API-Key": key.replace("\n", " ").encode()}
    status, reply_headers, text = secured_service.request(
        "POST", "/models/plain/predict", render_random_png(), key=None, **headers
    )
    assert status == 401 and "API key" in json.loads(text)["error"] and reply_headers["connection"] == "close"
    assert secured_service.request("GET", "/metrics", key=None)[0] == 401
    assert secured_service.request("GET", "/health", key=None)[0] == 200


def test_each_key_is_accepted_as_bearer_token_or_in_its_own_header(secured_service):
    for headers in ({"key": API_KEY}, {"key": "another"}, {"key": None, "X-API-Key": API_KEY}):
        assert secured_service.request("POST", "/models/plain/predict", render_random_png(), **headers)[0] == 200


def test_plain_http_is_not_answered(secured_service):
    connection = HTTPConnection("127.0.0.1", secured_service.port, timeout=10)
    connection.request("GET", "/health")
    with pytest.raises(OSError):  # noqa: PT011  # however the connection ends
        connection.getresponse()
    connection.close()


def test_several_models_are_selected_by_name(secured_service):
    status, _, text = secured_service.request("POST", "/predict", render_random_png())
    assert status == 404 and "plain, watched" in json.loads(text)["error"]
    _, _, text = secured_service.request("POST", "/models/watched/predict", render_random_png())
    assert json.loads(text)["model"] == "watched"


def test_canary_answers_its_share_and_is_compared(secured_service):
    versions = Counter()
    for seed in range(60):
        _, _, text = secured_service.request("POST", "/models/plain/predict", render_random_png(seed))
        versions[json.loads(text)["version"]] += 1
    assert len(versions) == 2 and min(versions.values()) > 10  # half each: fails by chance once in 10^6 runs
    _, _, text = secured_service.request("GET", "/models/plain/compared")
    comparison = json.loads(text)
    assert {comparison["version"], comparison["other"]} == set(versions)
    assert comparison["pictures"] >= versions[comparison["other"]] - 1  # the last may still be under way
    assert 0 <= comparison["same"]["low"] <= comparison["same"]["value"] <= comparison["same"]["high"] <= 1
    assert comparison["same"]["value"] == pytest.approx(
        1 - sum(comparison["differs"].values()) / comparison["pictures"], abs=1e-6
    )
    assert 0 < comparison["distance"] < 1
    assert secured_service.request("GET", "/models/watched/compared")[0] == 404


def test_bundle_is_reloaded_when_its_link_changes(secured_service, bundles, tmp_path):
    before = secured_service.read_version("watched")

    def point_link_to(target):
        (tmp_path / "link").symlink_to(target)
        (tmp_path / "link").rename(secured_service.bundle_link)

    point_link_to(bundles[1])
    wait_until(lambda: secured_service.read_version("watched") != before, PATIENCE_SECONDS)
    point_link_to(tmp_path)  # not a bundle: the loaded one keeps answering
    point_link_to(bundles[0])
    wait_until(lambda: secured_service.read_version("watched") == before, PATIENCE_SECONDS)


def test_requests_beyond_full_queue_get_429_and_retry_after(secured_service):
    replies, images = [], [render_random_png(seed, (900, 900)) for seed in range(6)]
    barrier = threading.Barrier(12)

    def send_requests():
        for image in images:  # rendered before, and sent at once: requests that come one by one never fill the queue
            barrier.wait(60)
            replies.append(secured_service.request("POST", "/models/plain/predict", image))

    threads = [threading.Thread(target=send_requests) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    statuses = Counter(status for status, _, _ in replies)
    assert set(statuses) == {200, 429}
    for status, headers, text in replies:
        if status == 429:
            assert headers["retry-after"] == "1" and f"{MAX_WAITING} requests wait" in json.loads(text)["error"]
    assert secured_service.request("POST", "/models/plain/predict", render_random_png())[0] == 200


def test_access_log_has_a_line_per_request_and_no_key(secured_service):
    path = '/models/plain/predict?a="b'
    secured_service.request("POST", path, render_random_png(), **{"X-Request-Id": "mine-2"})
    secured_service.request("GET", "/nothing/%7f%0a%22", key="wrong")

    def read_log_rows():
        return [json.loads(line) for line in secured_service.access_log.read_text().splitlines()]

    wait_until(lambda: read_log_rows()[-1]["status"] == 404, 10)  # a line is written after its reply
    rows = read_log_rows()
    (entry,) = [row for row in rows if row["id"] == "mine-2"]
    assert entry["status"] == 200 and entry["method"] == "POST" and entry["path"] == "/models/plain/predict"
    assert 0 < entry["seconds"] < 60 and entry["client"] == "127.0.0.1"
    assert rows[-1]["path"].endswith('\n"')
    assert API_KEY not in secured_service.access_log.read_text()
