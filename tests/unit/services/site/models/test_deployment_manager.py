"""Changes of deployments that Ray Serve does not take, and that somebody else makes at the same moment."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from jobs.site_ray.ray_dashboard import RayDashboard
from services.site.models.deployments.deployment import Adaptation, Deployment
from services.site.models.deployments.deployment_manager import DeploymentManager
from services.site.models.deployments.serve_api import ServeApi
from tests.support.errors import raises_code

DIGITS = Deployment(
    name="digits", model="digits", bundle="bundles/b", previous="bundles/a", canary="bundles/c", port=8001
)
ADAPTATION = Adaptation(job="adapt-1", bundle="bundles/d", report="report.json", at=1.0)


def open_manager(results, url="http://127.0.0.1:1", deployment=DIGITS):
    manager = DeploymentManager(results, ServeApi(RayDashboard(url)))
    manager.store.add_deployment(lambda _: deployment)
    return manager


@pytest.mark.parametrize("change", ["stop_canary", "undeploy"])
def test_a_change_that_serve_does_not_take_is_undone(tmp_path, change):
    manager = open_manager(tmp_path)
    with raises_code("cluster-unreachable"):
        getattr(manager, change)("digits")
    assert manager.list_deployments() == [DIGITS]


def test_undoing_a_change_keeps_what_another_person_changed_meanwhile(tmp_path):
    asked, may_answer = threading.Event(), threading.Event()

    class FailingServe(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.set()
            may_answer.wait(60)
            self.send_error(500)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), FailingServe) as server, ThreadPoolExecutor(3) as pool:
        pool.submit(server.serve_forever)
        manager = open_manager(tmp_path, f"http://127.0.0.1:{server.server_port}")
        stopping = pool.submit(manager.stop_canary, "digits")
        assert asked.wait(60)
        adapting = pool.submit(
            manager.store.change_deployment, "digits", lambda current: replace(current, adaptation=ADAPTATION)
        )
        may_answer.set()
        assert stopping.exception(60).code == "service-refused"
        assert adapting.result(60).canary == "bundles/c"
        server.shutdown()
    assert manager.list_deployments() == [replace(DIGITS, adaptation=ADAPTATION)]


def test_a_key_file_that_is_gone_is_named(tmp_path):
    manager = open_manager(tmp_path, deployment=replace(DIGITS, requires_key=True))
    with raises_code("file-damaged", "digits.keys"):
        manager.read_key("digits")


def test_a_key_file_without_a_key_is_written_anew_and_a_good_one_stays(tmp_path):
    manager = open_manager(tmp_path, deployment=replace(DIGITS, requires_key=True))
    file = tmp_path / ".site" / "keys" / "digits.keys"
    file.parent.mkdir()
    file.write_text("")
    manager._write_key("digits")
    key = manager.read_key("digits")
    manager._write_key("digits")
    assert manager.read_key("digits") == key and file.stat().st_mode & 0o077 == 0
