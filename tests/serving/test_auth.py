"""A service that others can reach: keys, TLS, several models, a canary, a watched bundle, little patience, a log."""

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

KEY, WAITING = "open-sesame", 2


def picture(seed=0, size=(16, 16)):
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, size).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


@dataclass(frozen=True)
class Guarded:
    """The service, and what its clients must know."""

    port: int
    trust: ssl.SSLContext
    log: Path
    watched: Path
    """a link to the bundle that answers as `watched`"""

    def ask(self, method, path, body=None, key=KEY, **headers):
        """Status, headers and body of the reply."""
        connection = HTTPSConnection("127.0.0.1", self.port, timeout=30, context=self.trust)
        try:
            told = {"Content-Type": "image/png"} | ({"Authorization": f"Bearer {key}"} if key else {}) | headers
            connection.request(method, path, body, told)
            reply = connection.getresponse()
            return reply.status, dict(reply.getheaders()), reply.read()
        finally:
            connection.close()

    def version(self, name):
        """Of the bundle that answers for a model."""
        _, _, body = self.ask("GET", "/models")
        return next(one["current"]["version"] for one in json.loads(body)["models"] if one["name"] == name)


@pytest.fixture(scope="module")
def guarded(stage, cluster, bundles, tmp_path_factory):
    stage.clear()
    place = tmp_path_factory.mktemp("guarded")
    (port,) = find_free_ports(1)
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", place / "key.pem", "-out", place / "cert.pem", "-days", "1", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    (place / "keys").write_text(f"another\n{KEY}\n")
    (place / "keys").chmod(0o600)
    (place / "watched").symlink_to(bundles[0])
    wanted = {
        "plain": {"bundle": str(bundles[0]), "canary": str(bundles[1]), "share": 0.5},
        "watched": {"bundle": str(place / "watched")},
    }
    files = {
        "api_keys_file": "keys",
        "certfile": "cert.pem",
        "keyfile": "key.pem",
        "access_log": "access.jsonl",
    }
    arguments = {name: str(place / file) for name, file in files.items()}
    arguments |= {"port": port, "reload_seconds": 0.2, "limits": {"waiting": WAITING}}
    cluster.deploy(
        {
            "proxy_location": "Disabled",
            "applications": [
                {
                    "name": "guarded",
                    "route_prefix": "/",
                    "import_path": "services.app:build",
                    "args": arguments,
                    "deployments": [{"name": "Predictor", "user_config": wanted}],
                }
            ],
        }
    )
    trust = ssl.create_default_context(cafile=str(place / "cert.pem"))
    made = Guarded(port, trust, place / "access.jsonl", place / "watched")

    def answers():
        try:
            return made.ask("GET", "/ready", key=None)[0] == 200
        except OSError:
            return False

    wait_until(answers, 120)
    yield made
    cluster.shut_down_serve()


@pytest.mark.parametrize("key", [None, "", "open-sesam", "another\nopen-sesame", "Ж"])
def test_without_a_key_nothing_is_answered_but_health(guarded, key):
    headers = {} if key is None else {"X-API-Key": key.replace("\n", " ").encode()}
    status, replied, text = guarded.ask("POST", "/models/plain/predict", picture(), key=None, **headers)
    assert status == 401 and "API key" in json.loads(text)["error"] and replied["connection"] == "close"
    assert guarded.ask("GET", "/metrics", key=None)[0] == 401
    assert guarded.ask("GET", "/health", key=None)[0] == 200


def test_any_of_the_keys_opens_as_bearer_or_by_its_own_header(guarded):
    for headers in ({"key": KEY}, {"key": "another"}, {"key": None, "X-API-Key": KEY}):
        assert guarded.ask("POST", "/models/plain/predict", picture(), **headers)[0] == 200


def test_plain_http_is_not_spoken(guarded):
    connection = HTTPConnection("127.0.0.1", guarded.port, timeout=10)
    connection.request("GET", "/health")
    with pytest.raises(OSError):  # noqa: PT011  # however the connection ends
        connection.getresponse()
    connection.close()


def test_several_models_are_asked_by_name(guarded):
    status, _, text = guarded.ask("POST", "/predict", picture())
    assert status == 404 and "plain, watched" in json.loads(text)["error"]
    _, _, text = guarded.ask("POST", "/models/watched/predict", picture())
    assert json.loads(text)["model"] == "watched"


def test_a_canary_answers_its_share_and_is_compared(guarded):
    versions = Counter()
    for seed in range(60):
        _, _, text = guarded.ask("POST", "/models/plain/predict", picture(seed))
        versions[json.loads(text)["version"]] += 1
    assert len(versions) == 2 and min(versions.values()) > 10  # half each: 1 in 10^6 that not
    _, _, text = guarded.ask("GET", "/models/plain/compared")
    found = json.loads(text)
    assert {found["version"], found["other"]} == set(versions)
    assert found["pictures"] >= versions[found["other"]] - 1  # the last may still be under way
    assert 0 <= found["same"]["low"] <= found["same"]["value"] <= found["same"]["high"] <= 1
    assert found["same"]["value"] == pytest.approx(1 - sum(found["differs"].values()) / found["pictures"], abs=1e-6)
    assert 0 < found["distance"] < 1
    assert guarded.ask("GET", "/models/watched/compared")[0] == 404


def test_a_watched_bundle_is_swapped_and_back(guarded, bundles, tmp_path):
    before = guarded.version("watched")

    def point(target):
        (tmp_path / "link").symlink_to(target)
        (tmp_path / "link").rename(guarded.watched)

    point(bundles[1])
    wait_until(lambda: guarded.version("watched") != before, 30)
    point(tmp_path)  # no bundle is there: what answers goes on
    point(bundles[0])
    wait_until(lambda: guarded.version("watched") == before, 30)


def test_who_comes_when_too_many_wait_is_told_when_to_come_again(guarded):
    seen = []

    def client():
        for seed in range(6):
            seen.append(guarded.ask("POST", "/models/plain/predict", picture(seed, (900, 900))))

    threads = [threading.Thread(target=client) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    statuses = Counter(status for status, _, _ in seen)
    assert set(statuses) == {200, 429}
    for status, headers, text in seen:
        if status == 429:
            assert headers["retry-after"] == "1" and f"{WAITING} requests wait" in json.loads(text)["error"]
    assert guarded.ask("POST", "/models/plain/predict", picture())[0] == 200


def test_each_request_is_a_line_of_the_log_and_no_key_is(guarded):
    path = '/models/plain/predict?a="b'
    guarded.ask("POST", path, picture(), **{"X-Request-Id": "mine-2"})
    guarded.ask("GET", "/nothing/%7f%0a%22", key="wrong")

    def logged():
        return [json.loads(line) for line in guarded.log.read_text().splitlines()]

    wait_until(lambda: logged()[-1]["status"] == 404, 10)  # a line follows its reply
    lines = logged()
    (mine,) = [line for line in lines if line["id"] == "mine-2"]
    assert mine["status"] == 200 and mine["method"] == "POST" and mine["path"] == "/models/plain/predict"
    assert 0 < mine["seconds"] < 60 and mine["client"] == "127.0.0.1"
    assert lines[-1]["path"].endswith('\n"')
    assert KEY not in guarded.log.read_text()
