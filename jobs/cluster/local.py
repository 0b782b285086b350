"""Run an autoscaling cluster on this machine, such as that of cluster.local.yaml.

Starts the head with the environment variables that Ray's node provider for one machine needs. The head listens on
loopback only and requires the token from whoever submits jobs. Ctrl-C stops it with all its nodes.

Exit status: 0 ended by Ctrl-C; 1 Ray did not start, or stopped by itself; 2 wrong options or files.
"""

from equipoise.startup_signals import exit_on_startup_signals

if __name__ == "__main__":
    exit_on_startup_signals()

import copy
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Annotated, Any

import psutil
import tyro
import yaml

from equipoise.command_line import command
from equipoise.errors import CommandFailed, EquipoiseError
from equipoise.formatting import pluralize
from equipoise.storage.user_paths import require_local_paths
from jobs.cli.option_parser import parse_options
from jobs.cli.paths import LocalPath
from jobs.cluster.private_ray import ENVIRONMENT_BIN, PrivateRay, start_private_ray
from jobs.cluster.processes import find_descendants, find_free_ports, is_alive, is_raylet, wait_until
from jobs.cluster.validate import validate_cluster_file
from jobs.cluster.yaml_files import load_yaml_documents

NODE_POLL_SECONDS = 1.0
DEFAULT_PORT = 8265  # Ray's default
DEFAULT_TOKEN_PATH = "~/.ray/auth_token"  # noqa: S105 - where Ray looks for it


@dataclass(frozen=True, kw_only=True)
class LocalClusterOptions:
    __doc__ = __doc__

    file: Annotated[LocalPath, tyro.conf.Positional]
    """cluster file whose provider is external"""
    port: int = DEFAULT_PORT
    """port on the loopback interface through which jobs are submitted"""


@command()
def main() -> int:
    """Run the cluster until Ctrl-C and return the exit status."""
    options = parse_options(LocalClusterOptions)
    require_local_paths({"FILE": options.file})
    for number in (signal.SIGTERM, signal.SIGINT):  # a process that a shell starts with & ignores SIGINT
        signal.signal(number, raise_keyboard_interrupt)
    try:
        config = read_local_cluster_file(options.file)
        require_private_token()
        if not 1 <= options.port <= 65535:
            raise EquipoiseError("option-range", f"--port must be from 1 to 65535, got {options.port}")
        require_free_port(options.port)
        run_cluster(config, options)
    except KeyboardInterrupt:
        print("\nstopped: nothing is left running", file=sys.stderr)
    except TimeoutError as error:
        raise CommandFailed(str(error)) from error
    return 0


def run_cluster(config: dict[str, Any], options: LocalClusterOptions) -> None:
    """Start the cluster and watch it until the head stops."""
    print("starting the cluster, which takes about half a minute", flush=True)
    with start_autoscaling_head(config, options.port) as private_ray:
        print(*format_usage_lines(config, options), sep="\n", flush=True)
        with suppress(psutil.NoSuchProcess):  # the head may stop before it is looked at
            print_node_counts(psutil.Process(private_ray.head_pid))
    raise CommandFailed("the head stopped by itself: start it again, and jobs resume from their checkpoints")


def print_node_counts(head: psutil.Process) -> None:
    """Print the number of nodes whenever it changes, until the head stops."""
    printed_count = 0
    while is_alive(head):
        if (count := count_worker_nodes(head.pid)) != printed_count:
            print(pluralize(count, "node") if count else "no nodes", flush=True)
            printed_count = count
        time.sleep(NODE_POLL_SECONDS)


def count_worker_nodes(head_pid: int) -> int:
    """Return the number of nodes that run beside the head."""
    return max(0, sum(map(is_raylet, find_descendants(head_pid))) - 1)


def raise_keyboard_interrupt(_number: int, _: FrameType | None) -> None:
    """Handle a signal as if Ctrl-C were pressed."""
    raise KeyboardInterrupt


def format_usage_lines(config: dict[str, Any], options: LocalClusterOptions) -> list[str]:
    """Return the lines that tell the user the address of the cluster and the variables to export for it."""
    address = f"http://127.0.0.1:{options.port}"
    return [
        f"{address} accepts jobs and starts up to {config['max_workers']} nodes for them; Ctrl-C stops it. To submit:",
        f"  export RAY_AUTH_MODE=token RAY_API_SERVER_ADDRESS={address}",
    ]


def read_local_cluster_file(path: Path) -> dict[str, Any]:
    """Read and validate a cluster file whose nodes can run on this machine."""
    if problems := validate_cluster_file(path):
        raise EquipoiseError("cluster-file", f"{path}: {problems[0]}")
    config: dict[str, Any]
    [config, *others] = load_yaml_documents(path)
    if others or config.get("provider", {}).get("type") != "external":
        raise EquipoiseError(
            "cluster-file",
            f"cannot start {path} on this machine: its nodes are machines elsewhere",
            f"start it with ray up {path}, or give cluster.local.yaml",
        )
    return config


def require_private_token() -> None:
    """Refuse to start without a token, or with one that others can read."""
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH", DEFAULT_TOKEN_PATH)).expanduser()
    if not path.is_file():
        raise EquipoiseError(
            "path-missing",
            f"there is no token at {path}",
            f"create one with ray get-auth-token --generate > /dev/null, then chmod 600 {path}",
        )
    if path.stat().st_mode & 0o077:
        raise EquipoiseError("file-permissions", f"the token at {path} can be read by others: chmod 600 {path}")


def require_free_port(port: int) -> None:
    """Refuse a port that another program listens on."""
    if is_port_open(port):
        raise EquipoiseError(
            "port-in-use",
            f"cannot listen on port {port}: another program, perhaps another local cluster, uses it",
            "choose another --port",
        )


def is_port_open(port: int) -> bool:
    """Return whether a program on this machine listens on a port."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextmanager
def start_autoscaling_head(config: dict[str, Any], port: int) -> Iterator[PrivateRay]:
    """Start the head and set how far it may grow; at the end of the block it stops with all its nodes."""
    [gcs_port], config = find_free_ports(1), copy.deepcopy(config)
    config["provider"]["gcs_address"] = f"127.0.0.1:{gcs_port}"
    with TemporaryDirectory() as folder:
        file = Path(folder, "cluster.yaml")
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        environment = build_head_environment(config["provider"]["head_node_id"])
        with start_private_ray(
            0, f"--autoscaling-config={file}", gcs_port=gcs_port, dashboard_port=port, **environment
        ) as private_ray:
            process = private_ray.start_command(sys.executable, "-m", "jobs.cluster.limits", str(file))
            _, stderr = process.communicate()
            if process.returncode:
                raise CommandFailed(f"cannot set how far the cluster may grow: {stderr[-2000:]}")
            wait_until(lambda: is_port_open(port), 120, "the start of the server that accepts jobs")
            yield private_ray


def build_head_environment(head_node_id: str) -> dict[str, str]:
    """Return the environment variables that the head needs beside those of this process."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_FAKE_CLUSTER": "1",  # without it the provider does not start
        "RAY_enable_autoscaler_v2": "1",  # as `ray up` sets it; version 2 knows nodes by the next variable
        "RAY_CLOUD_INSTANCE_ID": head_node_id,
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",  # Ray's default is every five seconds
        "PYTHONPATH": str(Path(__file__).parents[2]),  # where the autoscaler finds the provider
        "PATH": f"{ENVIRONMENT_BIN}:{os.environ['PATH']}",  # submitted commands call `python`
    }


if __name__ == "__main__":
    sys.exit(main())
