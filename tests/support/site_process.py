"""`equipoise up` of a results folder as a process that may be killed and started again, and the end of its Ray."""

import os
import subprocess
import sys

from equipoise.client import EquipoiseClient
from equipoise.errors import EquipoiseError
from jobs.cluster.processes import find_free_ports, wait_until
from tests.support.ray_cluster import ROOT

START_SECONDS = 300  # of a site with its Ray, on a machine that does other things too


class SiteProcess:
    """`equipoise up` of a results folder, which may be killed and started again."""

    def __init__(self, folder, *options, environment=None):
        self.folder, (self.port,) = folder, find_free_ports(1)
        self.options = options or ("--cpus", "2")
        self.environment = (environment or os.environ) | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self.client = EquipoiseClient(f"http://127.0.0.1:{self.port}")
        self.start()

    def start(self):
        """Start the command and wait until the site answers."""
        given = ["--results", "runs", "--port", str(self.port), *self.options]
        command = [sys.executable, "-m", "jobs.site_ray.up", *given]
        with (self.folder / "up.log").open("a") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=log, stderr=log)
        wait_until(self.is_answering, START_SECONDS, "the start of the site")

    def is_answering(self):
        """Return whether the site answers; fail if its process has ended."""
        assert self.process.poll() is None, (self.folder / "up.log").read_text()
        try:
            return self.client.get_cluster()["nodes"] == 1
        except EquipoiseError:
            return False

    def end(self, number):
        """End the site by a signal, and return its exit status."""
        self.process.send_signal(number)
        return self.process.wait(30)


def end_site_ray(folder):
    """End the Ray of a site, and what runs on it."""
    down = [sys.executable, "-m", "jobs.site_ray.down", "--results", "runs"]
    subprocess.run(down, cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True, timeout=180)
