"""Replicas of one service share its port; a second service on the same port is refused."""

import os
import subprocess
import tempfile

from jobs import LOOPBACK_ENV
from services.http.server import bind_shared_socket
from tests.serving.conftest import SERVE_COMMAND
from tests.support.ray_cluster import ROOT


def test_port_of_another_service_is_refused(bundles, service_slot):
    service_slot.clear()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with bind_shared_socket("127.0.0.1", 0) as other, tempfile.TemporaryDirectory(prefix="eq-") as ray_folder:
        other.listen()
        port = other.getsockname()[1]
        command = [SERVE_COMMAND, "run", "services.app:build", f"bundle={bundles[0]}", f"port={port}"]
        environment |= {"RAY_TMPDIR": ray_folder} | LOOPBACK_ENV
        result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 2
    [error] = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert f"cannot listen on 127.0.0.1:{port}" in error and error.endswith("[port-in-use]")
