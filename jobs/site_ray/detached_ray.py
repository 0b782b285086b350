"""Ray head node of a results folder: it goes on when the site that started it ends, and the next site finds it.

The head listens on loopback alone and takes commands only from who has its token, a file that only its owner can read.
What the next site needs to know lies in the state folder, written whole or not at all.
"""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from equipoise.errors import EquipoiseError
from equipoise.storage.atomic import write_json
from equipoise.storage.json_decoding import decode_json_bytes
from jobs import LOOPBACK_ENV
from jobs.cluster.private_ray import ENVIRONMENT_BIN, RAY_TEMP_PREFIX, RAY_TEMP_ROOT
from jobs.cluster.processes import find_free_ports, find_process_tree, find_raylets, kill_processes, wait_until
from jobs.site_ray.ray_dashboard import RayDashboard

DEFAULT_RESULTS = Path("runs")
STATE_FOLDER = ".site"  # below the results; its name begins with a dot, so it is no experiment
FACTS_FILE, TOKEN_FILE, LOG_FILE = "cluster.json", "ray-token", "ray.log"
START_SECONDS = 180.0  # for the dashboard to answer
JOB_STOP_SECONDS = 60  # between SIGTERM and SIGKILL for a job that is stopped: it writes a checkpoint
LOG_TAIL_BYTES = 2000


class DetachedRayFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a site must know to use a Ray that another one started: `cluster.json`."""

    schema: int = 1
    gcs_address: str
    """HOST:PORT that drivers join"""
    dashboard_url: str
    """URL at which jobs are submitted"""
    temp_dir: str
    """folder of Ray's logs and sockets"""
    head_pid: int
    head_created: float
    """when the head's process was created, which tells it from a later one with the same id"""


def find_detached_ray(state_folder: Path) -> DetachedRayFacts | None:
    """Return the Ray that was started for a results folder, if it still runs."""
    try:
        facts = read_ray_facts(state_folder)
        process = psutil.Process(facts.head_pid)
        is_same = abs(process.create_time() - facts.head_created) < 1 and process.is_running()
        is_alive = is_same and process.status() != psutil.STATUS_ZOMBIE
    except (OSError, EquipoiseError, psutil.Error):  # it has ended, or its id is that of another user's process
        return None
    return facts if is_alive else None


def read_ray_facts(state_folder: Path) -> DetachedRayFacts:
    """Read what a site has noted about the Ray that it started."""
    file = state_folder / FACTS_FILE
    return decode_json_bytes(file.read_bytes(), DetachedRayFacts, code="file-damaged", problem=f"cannot read {file}")


def read_ray_token(state_folder: Path) -> str:
    """Return the token of the Ray of a results folder; create it in a file that only its owner can read."""
    state_folder.mkdir(parents=True, exist_ok=True)
    file = state_folder / TOKEN_FILE
    if not file.is_file() or not file.read_text(encoding="utf-8").strip():
        file.unlink(missing_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(secrets.token_hex(32))
    return file.read_text(encoding="utf-8").strip()


def start_detached_ray(state_folder: Path, cpus: int | None = None) -> DetachedRayFacts:
    """Start a head node that outlives this process, wait until it takes jobs, and note where it is."""
    token = read_ray_token(state_folder)
    temp_dir = tempfile.mkdtemp(prefix=RAY_TEMP_PREFIX, dir=RAY_TEMP_ROOT)
    ports = find_free_ports(4)
    log = state_folder / LOG_FILE
    with log.open("wb") as output:
        head = subprocess.Popen(  # noqa: S603 - Ray's own command line
            build_head_command(temp_dir, ports, cpus), env=build_ray_environment(state_folder),
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    facts = DetachedRayFacts(
        gcs_address=f"127.0.0.1:{ports[0]}",
        dashboard_url=f"http://127.0.0.1:{ports[1]}",
        temp_dir=temp_dir,
        head_pid=head.pid,
        head_created=psutil.Process(head.pid).create_time(),
    )
    write_json(state_folder / FACTS_FILE, msgspec.to_builtins(facts))  # first: `down` ends a start that was killed
    dashboard = RayDashboard(facts.dashboard_url, token)
    try:
        wait_until(lambda: head.poll() is not None or dashboard.is_ready(), START_SECONDS, "Ray's start")
    except BaseException as error:
        stop_detached_ray(state_folder, facts)
        if isinstance(error, TimeoutError):
            problem = f"cannot start Ray: it has not answered within {START_SECONDS:.0f} s"
            raise EquipoiseError("cluster-unreachable", problem, f"see {log}") from None
        raise
    if head.poll() is not None:
        stop_detached_ray(state_folder, facts)
        text = log.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()
        reason = text.splitlines()[-1] if text else "it said nothing"
        raise EquipoiseError("cluster-unreachable", f"cannot start Ray: {reason}", f"see {log}")
    return facts


def build_head_command(temp_dir: str, ports: Sequence[int], cpus: int | None) -> tuple[str, ...]:
    """Return the command line of a head node; its ports are those of drivers, dashboard, Ray's clients and agent."""
    gcs_port, dashboard_port, client_port, agent_port = ports
    return (
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"),
        *("--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1", f"--temp-dir={temp_dir}"),
        *(f"--port={gcs_port}", f"--dashboard-port={dashboard_port}"),
        *(f"--ray-client-server-port={client_port}", f"--dashboard-agent-listen-port={agent_port}"),
        *("--min-worker-port=0", "--max-worker-port=0", *([f"--num-cpus={cpus}"] if cpus else [])),
    )


def build_ray_environment(state_folder: Path) -> dict[str, str]:
    """Return the environment of a detached head, which its jobs inherit."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "RAY_AUTH_TOKEN")}
    return inherited | LOOPBACK_ENV | {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str((state_folder / TOKEN_FILE).absolute()),
        "RAY_JOB_STOP_WAIT_TIME_S": str(JOB_STOP_SECONDS),
        "PATH": f"{ENVIRONMENT_BIN}:{os.environ.get('PATH', os.defpath)}",
    }  # fmt: skip


def stop_detached_ray(state_folder: Path, facts: DetachedRayFacts) -> None:
    """End the head with all that runs on it, and forget it."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(facts.head_pid)
        if abs(process.create_time() - facts.head_created) < 1:
            kill_processes(find_process_tree(facts.head_pid))
    while left := find_raylets(facts.temp_dir):  # once the head is gone, nodes may be left without a parent
        kill_processes(left)
    (state_folder / FACTS_FILE).unlink(missing_ok=True)
    shutil.rmtree(facts.temp_dir, ignore_errors=True)
