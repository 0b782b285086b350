"""A command that starts its own Ray listens on loopback only and refuses foreign connections."""

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

JOIN_SCRIPT = "import ray, sys; ray.init(address=sys.argv[1]); print('connected')"


def find_gcs_address(root):
    """Return the address of the control store of the Ray that a process has started, or None."""
    for pid in (process.pid for process in find_process_tree(root)):
        arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0") if Path(f"/proc/{pid}").exists() else []
        addresses = [text.partition("=")[2] for text in arguments if text.startswith("--gcs-address=")]
        if addresses:
            return addresses[0]
    return None


def test_own_ray_of_a_command_is_closed_to_others(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    flags = "--workload", "digits", "--max-examples", "10000000", "--target", "2", "--out", str(tmp_path / "run")
    process = spawn_process((sys.executable, "-m", "jobs.train", *flags), environment, tmp_path / "log", ROOT)
    try:
        wait_until((tmp_path / "run" / "laps.jsonl").exists, 120, "the first lap")
        reporters = [
            descendant.pid
            for descendant in find_process_tree(process.pid)
            if b"UsageStatsHead" in Path(f"/proc/{descendant.pid}/cmdline").read_bytes()
        ]
        assert reporters  # they would send usage reports to Ray's makers, which the environment switches off
        for pid in reporters:
            assert b"RAY_USAGE_STATS_ENABLED=0\0" in Path(f"/proc/{pid}/environ").read_bytes()
        sockets = find_public_sockets(descendant.pid for descendant in find_process_tree(process.pid))
        # the rendezvous of torch has no option to listen on loopback only
        assert [socket for socket in sockets if "RayTrainWorker" not in socket] == []
        # without LOOPBACK_ENV this Ray would look for the other one at another address
        joining_environment = environment | LOOPBACK_ENV | {"RAY_gcs_rpc_server_connect_timeout_s": "1"}
        joining = subprocess.run(
            (sys.executable, "-c", JOIN_SCRIPT, find_gcs_address(process.pid)),
            env=joining_environment,
            capture_output=True,
            text=True,
        )
        assert joining.returncode != 0 and "connected" not in joining.stdout.split()
        assert "token is missing" in joining.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143, (tmp_path / "log").read_text()
    finally:
        terminate_process_groups([process])
