"""Start the cluster of cluster.local.yaml, with a copy of the project to submit from and a user with a token."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path

from jobs.cluster.private_ray import ENVIRONMENT_BIN
from jobs.cluster.processes import (
    find_descendants,
    find_free_ports,
    is_alive,
    terminate_process_groups,
    wait_until,
)
from tests.support.ray_cluster import ROOT

IGNORED_FILES = {"tests/secret.txt", "data/secret.txt", "bundles/secret.txt"}
"""files of the user that .rayignore excludes"""


@dataclass
class LocalCluster:
    """The running cluster, its user, and how its number of nodes has changed."""

    port: int
    home: Path
    head_pid: int
    project: Path
    """the user's copy of the project"""
    node_counts: list[tuple[float, int]] = field(default_factory=list)
    """each change of the number of nodes besides the head: monotonic seconds, and the number from then on"""
    journal: Path | None = None
    """laps.jsonl whose first lap is timed"""
    first_lap_seconds: float = 0.0
    """monotonic time at which the first lap of `journal` appeared; 0 until then"""

    @property
    def token(self) -> str:
        return (self.home / ".ray" / "auth_token").read_text()

    def build_environment(self) -> dict[str, str]:
        """Return the environment after the guide's first `export`, without Ray's variables of this process."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        path = f"{ENVIRONMENT_BIN}:{os.environ['PATH']}"
        address = f"http://127.0.0.1:{self.port}"
        added = {"RAY_AUTH_MODE": "token", "RAY_API_SERVER_ADDRESS": address, "SHARED": str(self.project / "runs")}
        return inherited | {"HOME": str(self.home), "PATH": path} | added

    def run(self, block: str, timeout: float = 200, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a block of the guide to its end, with the port of this cluster, and record progress meanwhile."""
        script = block.replace(":8265", f":{self.port}")
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                ["/bin/bash", "-euo", "pipefail", "-c", script],
                cwd=self.project,
                env=self.build_environment() | variables,
                stdout=output,
                stderr=output,
                text=True,
                start_new_session=True,
            )
            try:
                wait_until(lambda: self.record_progress() and process.poll() is not None, timeout, script)
            finally:
                terminate_process_groups([process])
            output.seek(0)
            print(text := output.read())
            return subprocess.CompletedProcess(block, process.returncode, text)

    def record_progress(self) -> bool:
        """Count the nodes, note when the first lap of `journal` appears, and return True."""
        self.count_nodes()
        if self.journal and not self.first_lap_seconds and self.journal.exists() and self.journal.stat().st_size:
            self.first_lap_seconds = time.monotonic()
        return True

    def find_processes(self) -> set[int]:
        """Return the ids of all processes of the cluster."""
        return {process.pid for process in find_descendants(self.head_pid)}

    def find_raylets(self) -> list[int]:
        """Return the process id of the raylet of each node besides the head, oldest first."""
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in self.find_processes()}
        return sorted(pid for pid, command in commands.items() if "/raylet\0" in command and "--head" not in command)

    def wait_until_empty(self, timeout: float = 90) -> None:
        """Wait until all nodes besides the head have ended."""
        wait_until(lambda: self.count_nodes() == 0, timeout, "the end of all nodes")

    def count_nodes(self) -> int:
        """Return the number of nodes alive besides the head, and record it if it has changed."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/nodes?view=summary", headers={"Authorization": f"Bearer {self.token}"})
        nodes = json.load(connection.getresponse())["data"]["summary"]
        connection.close()
        count = sum(node["raylet"]["state"] == "ALIVE" for node in nodes) - 1
        if not self.node_counts or self.node_counts[-1][1] != count:
            self.node_counts.append((time.monotonic(), count))
        return count


@contextmanager
def start_local_cluster(folder: Path):
    """Start a head without nodes for the length of the block; its user and their project lie below `folder`."""
    home, project = folder / "home", folder / "equipoise"
    (home / ".ray").mkdir(parents=True)
    copy_project(project)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"HOME": str(home)}
    [port], log = find_free_ports(1), folder / "head.log"
    token_command = [str(ENVIRONMENT_BIN / "ray"), "get-auth-token", "--generate"]
    subprocess.run(token_command, env=environment, check=True, capture_output=True)
    command = [sys.executable, "-m", "jobs.cluster.local", "cluster.local.yaml", "--port", str(port)]
    refused = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "can be read by others: chmod 600" in refused.stderr
    (home / ".ray" / "auth_token").chmod(0o600)
    with log.open("w") as file:
        process = subprocess.Popen(
            command, cwd=project, env=environment, stdout=file, stderr=file, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 180
        while "accepts jobs" not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield LocalCluster(port, home, process.pid, project)
        descendants = find_descendants(process.pid)
    finally:
        process.terminate()
        process.wait(60)
    assert process.returncode == 0, log.read_text()
    wait_until(lambda: not any(map(is_alive, descendants)), 30, "the end of all processes")


def copy_project(project: Path) -> None:
    """Copy the project as it is under version control, and add files that must not be uploaded."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, project / name)
    for name in IGNORED_FILES:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("not to be sent")
