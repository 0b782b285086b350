"""A cluster on this machine that grows and shrinks: python -m jobs.cluster.local cluster.local.yaml

Starts the head, with the variables that Ray's provider of nodes for one machine needs, asks for the token of whoever
submits, listens on loopback alone, and ends with all its nodes on Ctrl-C.
"""

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

import tyro
import yaml

from jobs.cluster.private_ray import ENVIRONMENT_BIN, PrivateRay, start_private_ray
from jobs.cluster.processes import find_descendants, find_free_ports, is_raylet, read_start_time, wait_until
from jobs.cluster.validate import validate_cluster_file

DEFAULT_PORT = 8265  # Ray's own choice
DEFAULT_TOKEN_PATH = "~/.ray/auth_token"  # noqa: S105 - where Ray looks for it


@dataclass(frozen=True, kw_only=True)
class LocalClusterOptions:
    __doc__ = __doc__

    file: Annotated[Path, tyro.conf.Positional]
    """a cluster file whose provider is external"""
    port: int = DEFAULT_PORT
    """of this machine's loopback, through which jobs are submitted"""


def main() -> int:
    """Exit status: 0 ended by Ctrl-C, 1 Ray does not start, 2 asked for what cannot be."""
    asked = tyro.cli(LocalClusterOptions)
    for number in (signal.SIGTERM, signal.SIGINT):  # a shell's & has it ignore the second
        signal.signal(number, raise_keyboard_interrupt)
    try:
        config = read_local_cluster_file(asked.file)
        require_private_token()
        if not 1 <= asked.port <= 65535:
            raise ValueError(f"--port must be from 1 to 65535, got {asked.port}")
        require_free_port(asked.port)
        print("starting; about half a minute", flush=True)
        with start_autoscaling_head(config, asked.port) as made:
            print(*format_usage_lines(config, asked), sep="\n", flush=True)
            told_of = 0
            while read_start_time(made.head_pid):
                if (count := count_worker_nodes(made.head_pid)) != told_of:
                    print(f"{count or 'no'} node{'s' * (count != 1)}", flush=True)
                    told_of = count
                time.sleep(1)
            raise RuntimeError("the head has ended by itself: start it again, and jobs go on from their checkpoints")
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (RuntimeError, TimeoutError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nended: nothing is left running", file=sys.stderr)
    return 0


def count_worker_nodes(head_pid: int) -> int:
    """How many there are beside the head."""
    return max(0, sum(is_raylet(Path(f"/proc/{pid}")) for pid in find_descendants(head_pid)) - 1)


def raise_keyboard_interrupt(_number: int, _: FrameType | None) -> None:
    """To be ended is as Ctrl-C."""
    raise KeyboardInterrupt


def format_usage_lines(config: dict[str, Any], options: LocalClusterOptions) -> list[str]:
    """Where it is, and what to type there."""
    address = f"http://127.0.0.1:{options.port}"
    return [
        f"{address} takes jobs, up to {config['max_workers']} nodes come with them; Ctrl-C ends it. Elsewhere:",
        f"  export RAY_AUTH_MODE=token RAY_API_SERVER_ADDRESS={address}",
    ]


def read_local_cluster_file(path: Path) -> dict[str, Any]:
    """A cluster file that can be started here."""
    if found := validate_cluster_file(path):
        raise ValueError(f"{path}: {found[0]}")
    config: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    if config.get("provider", {}).get("type") != "external":
        raise ValueError(f"{path} is of machines elsewhere: ray up {path} starts them, and this cluster.local.yaml")
    return config


def require_private_token() -> None:
    """Refuse to start without a token, or with one that others can read."""
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH", DEFAULT_TOKEN_PATH)).expanduser()
    if not path.is_file():
        raise ValueError(f"no token at {path}: ray get-auth-token --generate > /dev/null, then chmod 600 {path}")
    if path.stat().st_mode & 0o077:
        raise ValueError(f"the token at {path} can be read by others: chmod 600 {path}")


def require_free_port(port: int) -> None:
    """Refuse a port that another program listens on."""
    if is_port_open(port):
        raise ValueError(f"another program listens on port {port}, maybe such a cluster: choose another --port")


def is_port_open(port: int) -> bool:
    """Whether a program of this machine listens there."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextmanager
def start_autoscaling_head(config: dict[str, Any], port: int) -> Iterator[PrivateRay]:
    """The head, told how far it may grow, until the end of the block; nodes end with it."""
    [gcs], config = find_free_ports(1), copy.deepcopy(config)
    config["provider"]["gcs_address"] = f"127.0.0.1:{gcs}"
    with TemporaryDirectory() as place:
        file = Path(place, "cluster.yaml")
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        words = f"--autoscaling-config={file}"
        with start_private_ray(
            0, words, gcs_port=gcs, dashboard_port=port, **build_head_environment(config["provider"]["head_node_id"])
        ) as made:
            bounds = made.start_command(sys.executable, "-m", "jobs.cluster.limits", str(file))
            _, said = bounds.communicate()
            if bounds.returncode:
                raise RuntimeError(f"the cluster cannot be told how far it may grow: {said[-2000:]}")
            wait_until(lambda: is_port_open(port), 120, "the start of what takes jobs")
            yield made


def build_head_environment(head_node_id: str) -> dict[str, str]:
    """What the head's environment holds beside ours."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_FAKE_CLUSTER": "1",  # the provider does not start without
        "RAY_enable_autoscaler_v2": "1",  # as `ray up` has it: it knows nodes by the next one
        "RAY_CLOUD_INSTANCE_ID": head_node_id,
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",  # it looks every five seconds otherwise
        "PYTHONPATH": str(Path(__file__).parents[2]),  # the autoscaler finds the provider there
        "PATH": f"{ENVIRONMENT_BIN}:{os.environ['PATH']}",  # submitted commands say `python`
    }


if __name__ == "__main__":
    sys.exit(main())
