"""The cluster of cluster.local.yaml, a copy of the project to submit from, and a user with a token of their own."""

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
    read_start_time,
    terminate_process_groups,
    wait_until,
)
from tests.support.ray_cluster import ROOT

HIDDEN = {"tests/secret.txt", "data/secret.txt", "bundles/secret.txt"}
"""files of the user's that .rayignore names"""


@dataclass
class LocalCluster:
    """The running cluster and its user."""

    port: int
    home: Path
    head: int
    """the head's process id"""
    place: Path
    """where the project lies, as a user has it"""
    seen: list[tuple[float, int]] = field(default_factory=list)
    """seconds of the monotonic clock, and nodes beside the head from then on"""
    journal: Path | None = None
    first_lap: float = 0.0

    @property
    def token(self) -> str:
        return (self.home / ".ray" / "auth_token").read_text()

    def environment(self) -> dict[str, str]:
        """Of a user who has typed what the README has first; nothing of it is in what the tests run in."""
        found = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        path = f"{ENVIRONMENT_BIN}:{os.environ['PATH']}"
        address = f"http://127.0.0.1:{self.port}"
        more = {"RAY_AUTH_MODE": "token", "RAY_API_SERVER_ADDRESS": address, "SHARED": str(self.place / "runs")}
        return found | {"HOME": str(self.home), "PATH": path} | more

    def run(self, text: str, timeout: float = 200, **variables: str) -> subprocess.CompletedProcess[str]:
        """A block of the README's, to its end, with another port; nodes are counted meanwhile, and laps looked for."""
        script = text.replace(":8265", f":{self.port}")
        with tempfile.TemporaryFile("w+") as said:
            process = subprocess.Popen(
                ["/bin/bash", "-euo", "pipefail", "-c", script],
                cwd=self.place,
                env=self.environment() | variables,
                stdout=said,
                stderr=said,
                text=True,
                start_new_session=True,
            )
            try:
                wait_until(lambda: self.looked() and process.poll() is not None, timeout, script)
            finally:
                terminate_process_groups([process])
            said.seek(0)
            print(found := said.read())
            return subprocess.CompletedProcess(text, process.returncode, found)

    def looked(self) -> bool:
        """Count nodes, and note when the first lap of `journal` was there."""
        self.nodes()
        if self.journal and not self.first_lap and self.journal.exists() and self.journal.stat().st_size:
            self.first_lap = time.monotonic()
        return True

    def processes(self) -> set[int]:
        """Ids of all that runs on the cluster."""
        return find_descendants(self.head)

    def raylets(self) -> list[int]:
        """Ids of what keeps each node beside the head, by age."""
        words = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in self.processes()}
        return sorted(pid for pid, one in words.items() if "/raylet\0" in one and "--head" not in one)

    def empty(self, timeout: float = 90) -> None:
        """Once all nodes beside the head are gone."""
        wait_until(lambda: self.nodes() == 0, timeout, "the end of all nodes")

    def nodes(self) -> int:
        """Those beside the head that are alive; it is noted when that changes."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/nodes?view=summary", headers={"Authorization": f"Bearer {self.token}"})
        found = json.load(connection.getresponse())["data"]["summary"]
        connection.close()
        count = sum(one["raylet"]["state"] == "ALIVE" for one in found) - 1
        if not self.seen or self.seen[-1][1] != count:
            self.seen.append((time.monotonic(), count))
        return count


@contextmanager
def start_local_cluster(above: Path):
    """A head without nodes, until the end of the block."""
    home, place = above / "home", above / "equipoise"
    (home / ".ray").mkdir(parents=True)
    copy_project(place)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"HOME": str(home)}
    [port], log = find_free_ports(1), above / "head.log"
    ray = [str(ENVIRONMENT_BIN / "ray"), "get-auth-token", "--generate"]
    subprocess.run(ray, env=environment, check=True, capture_output=True)
    words = [sys.executable, "-m", "jobs.cluster.local", "cluster.local.yaml", "--port", str(port)]
    refused = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "can be read by others: chmod 600" in refused.stderr
    (home / ".ray" / "auth_token").chmod(0o600)
    with log.open("w") as file:
        process = subprocess.Popen(words, cwd=place, env=environment, stdout=file, stderr=file, start_new_session=True)
    try:
        deadline = time.monotonic() + 180
        while "accepts jobs" not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield LocalCluster(port, home, process.pid, place)
        below = {pid: read_start_time(pid) for pid in find_descendants(process.pid)}
    finally:
        process.terminate()
        process.wait(60)
    assert process.returncode == 0, log.read_text()
    wait_until(
        lambda: not [pid for pid, birth in below.items() if read_start_time(pid) == birth],
        30,
        "the end of all processes",
    )


def copy_project(place: Path) -> None:
    """The project as it is under version control, with files of the user's beside it."""
    asked = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    for name in HIDDEN:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("not to be sent")
