"""Models of the site on a real Ray Serve: deploy, predict, canary, promote, roll back, a new site, undeploy."""

import json
import shutil
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from jobs.cluster.processes import wait_until
from jobs.site_ray.ray_dashboard import RayDashboard
from tests.support.bundles import publish_run, train_short_run
from tests.support.ray_cluster import ROOT
from tests.support.site import serve_site

DIGIT = (ROOT / "examples" / "digit.png").read_bytes()
START_SECONDS = 300
SWAP_SECONDS = 60


class ModelsClient:
    """Client of the site's endpoints of models, and of the service that it has deployed."""

    def __init__(self, site):
        self.site = site

    def call(self, method, path="", payload=None, expected=200):
        status, reply = self.site.api(method, f"/api/deployments{path}", payload)
        assert status == expected, reply
        return reply

    def deployment(self):
        return self.call("GET", "/digits")

    def predict(self):
        """Return the answer of the service to a digit."""
        url = f"{self.deployment()['url']}predict"
        with urlopen(Request(url, DIGIT, {"content-type": "image/png"}), timeout=30) as reply:  # noqa: S310 - HTTP
            return json.load(reply)

    def wait_for(self, condition, seconds=START_SECONDS):
        """Wait until the deployment is as expected, and return it."""
        return wait_until(lambda: (found := self.deployment()) and condition(found) and found, seconds)

    def wait_for_versions(self, expected):
        """Wait until exactly these versions answer, each more than once."""
        wait_until(lambda: {self.predict()["version"] for _ in range(12)} == expected, SWAP_SECONDS)

    def try_picture(self):
        """Send the digit by the site's page, and return the page with the answer."""
        token = self.site.csrf_token("/models/digits/try")
        head = (
            f'--b\r\nContent-Disposition: form-data; name="csrf_token"\r\n\r\n{token}\r\n--b\r\nContent-Disposition: '
        )
        file_head = 'form-data; name="picture"; filename="digit.png"\r\nContent-Type: image/png\r\n\r\n'
        body = f"{head}{file_head}".encode() + DIGIT + b"\r\n--b--\r\n"
        headers = {"content_type": "multipart/form-data; boundary=b", "accept": "text/html"}
        reply, content = self.site.request("POST", "/models/digits/try", body, **headers)
        assert reply.status == 200
        return content.decode()


@pytest.fixture(scope="module")
def results(monitored_digits, tmp_path_factory):
    """Results folder with two bundles of one model, a damaged one, and one of another model."""
    folder = tmp_path_factory.mktemp("site") / "results"
    shutil.copytree(monitored_digits, folder / "bundles" / "first")
    publish_run(train_short_run(folder / "runs" / "second", seed=1), folder / "bundles" / "second")
    shutil.copytree(folder / "bundles" / "second", folder / "bundles" / "damaged")
    (folder / "bundles" / "damaged" / "weights.safetensors").write_bytes(b"")
    return folder


@pytest.fixture
def serve_models(cluster, results):
    """Return a context manager that serves a site on the cluster; all it has deployed ends with the test."""
    address = cluster.environment["RAY_API_SERVER_ADDRESS"]
    wait_until(RayDashboard(address).is_ready, START_SECONDS)
    yield lambda: serve_site(results, ray_dashboard=address)
    cluster.shut_down_serve()


def test_a_model_is_deployed_swapped_in_place_and_goes_on_without_its_site(serve_models, results):
    with serve_models() as site:
        client = ModelsClient(site)
        bundles = {entry["path"]: entry for entry in site.api("GET", "/api/bundles")[1]["bundles"]}
        first, second = (bundles[f"bundles/{name}"]["version"] for name in ("first", "second"))
        client.call("POST", "", {"bundle": "bundles/damaged"}, expected=400)
        client.call("POST", "", {"bundle": "bundles/first"})
        client.call("POST", "", {"bundle": "bundles/second"}, expected=409)  # its name is taken
        client.wait_for(lambda found: found["state"] == "running" and found["version"] == first)
        check_answers(client, first)
        check_swaps(client, first, second)
    with serve_models() as site:
        check_next_site(ModelsClient(site), first)
        assert (results / "services" / "digits" / "captures").is_dir()


def check_answers(client, first):
    """The page to try a model shows the answer of the service, whose traffic the site measures."""
    page = client.try_picture()
    assert client.predict()["label"] in page and first in page and "data:image/png" in page
    deployment = client.wait_for(lambda found: found["verdict"] and found["traffic"] and found["traffic"]["total"] >= 2)
    assert deployment["verdict"]["state"] == "unknown"


def check_swaps(client, first, second):
    """A canary answers a share, is promoted and rolled back, without a new replica."""
    client.call("POST", "/digits/canary", {"bundle": "bundles/damaged"}, expected=400)
    client.call("POST", "/digits/promote", {}, expected=400)  # there is no canary
    client.call("POST", "/digits/canary", {"bundle": "bundles/second", "share": 0.5})
    client.wait_for_versions({first, second})
    answered = client.wait_for(lambda found: found["traffic"])["traffic"]["total"]
    assert client.call("POST", "/digits/promote", {})["bundle"] == "bundles/second"
    client.wait_for_versions({second})
    assert client.call("POST", "/digits/roll-back")["bundle"] == "bundles/first"
    client.wait_for_versions({first})
    assert client.wait_for(
        lambda found: found["traffic"] and found["traffic"]["total"] > answered
    )  # the same replica counts on
    kinds = [change["kind"] for change in client.deployment()["history"]]
    assert kinds == ["deploy", "canary", "promote", "roll back"]


def check_next_site(client, first):
    """A new site shows the deployment as it was left, whose service answered all the time, and ends it."""
    client.wait_for(lambda found: found["state"] == "running")
    assert client.predict()["version"] == first
    url = client.deployment()["url"]
    assert client.call("DELETE", "/digits")["name"] == "digits"
    assert client.call("GET")["deployments"] == []

    def is_silent():
        try:
            urlopen(f"{url}health", timeout=5).close()  # noqa: S310 - HTTP
        except URLError:
            return True
        return False

    wait_until(is_silent, START_SECONDS)
