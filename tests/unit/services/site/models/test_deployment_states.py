"""Looks at deployments, which many people share while Ray Serve answers slowly."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from jobs.site_ray.ray_dashboard import RayDashboard
from services.site.models.deployments.deployment import Deployment
from services.site.models.deployments.deployment_manager import DeploymentManager
from services.site.models.deployments.deployment_states import DeploymentStates
from services.site.models.deployments.serve_api import ServeApi

DIGITS = Deployment(name="digits", model="digits", bundle="bundles/a", port=8001)


def list_bundles(states):
    return [look.deployment.bundle for look in states.list_looks()]


def test_while_one_thread_looks_others_see_the_last_look_unless_something_was_changed(tmp_path):
    may_answer, asked = threading.Event(), threading.Event()
    may_answer.set()

    class SlowServe(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.set()
            may_answer.wait(60)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), SlowServe) as server, ThreadPoolExecutor(3) as pool:
        pool.submit(server.serve_forever)
        ray = RayDashboard(f"http://127.0.0.1:{server.server_port}")
        manager = DeploymentManager(tmp_path, ServeApi(ray))
        manager.store.add_deployment(lambda _: DIGITS)
        states = DeploymentStates(manager, look_seconds=0.0)
        assert list_bundles(states) == ["bundles/a"]
        may_answer.clear()
        asked.clear()
        first = pool.submit(list_bundles, states)
        assert asked.wait(60)
        assert list_bundles(states) == ["bundles/a"] and not first.done()
        manager.store.change_deployment("digits", lambda current: replace(current, bundle="bundles/b"))
        states.forget_looks()
        after_change = pool.submit(list_bundles, states)
        may_answer.set()
        assert first.result(60) == ["bundles/a"] and after_change.result(60) == ["bundles/b"]
        server.shutdown()
