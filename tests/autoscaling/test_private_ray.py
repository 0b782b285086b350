"""A command that starts a Ray for itself: it listens on loopback alone, and lets nobody else in."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from jobs import LOOPBACK_ENV
from jobs.cluster.private_ray import spawn_process
from jobs.cluster.processes import find_process_tree, terminate_process_groups, wait_until
from tests.support.listening_ports import find_public_sockets
from tests.support.ray_cluster import ROOT

JOIN = "import ray, sys; ray.init(address=sys.argv[1]); print('in')"


def gcs(root):
    """The port of the Ray that a process has started."""
    for pid in find_process_tree(root):
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0") if Path(f"/proc/{pid}").exists() else []
        places = [word.partition("=")[2] for word in words if word.startswith("--gcs-address=")]
        if places:
            return places[0]
    return None


def test_a_ray_that_a_command_starts_is_for_itself_alone(tmp_path):
    plain = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    asked = "--workload", "digits", "--max-examples", "10000000", "--target", "2", "--out", str(tmp_path / "run")
    running = spawn_process((sys.executable, "-m", "jobs.train", *asked), plain, tmp_path / "log", ROOT)
    try:
        wait_until((tmp_path / "run" / "laps.jsonl").exists, 120, "the first lap")
        heard = [
            pid
            for pid in find_process_tree(running.pid)
            if b"UsageStatsHead" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        assert heard  # who would tell Ray's makers, and is told not to
        for pid in heard:
            assert b"RAY_USAGE_STATS_ENABLED=0\0" in Path(f"/proc/{pid}/environ").read_bytes()
        beyond = find_public_sockets(find_process_tree(running.pid))
        assert [one for one in beyond if "RayTrainWorker" not in one] == []  # torch's rendezvous has no option for it
        hurried = plain | LOOPBACK_ENV | {"RAY_gcs_rpc_server_connect_timeout_s": "1"}  # or it would look elsewhere
        other = subprocess.run(
            (sys.executable, "-c", JOIN, gcs(running.pid)), env=hurried, capture_output=True, text=True
        )
        assert other.returncode != 0 and "in" not in other.stdout.split()
        assert "token is missing" in other.stderr
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 143, (tmp_path / "log").read_text()
    finally:
        terminate_process_groups([running])
