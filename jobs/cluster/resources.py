"""Connect to or start the Ray cluster that a job runs on, and count the workers that it can hold."""

import logging
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import psutil
import ray

from equipoise.errors import EquipoiseError
from equipoise.formatting import pluralize
from jobs.cluster.lost_head import accepts_connections
from jobs.cluster.processes import find_descendants, is_raylet
from jobs.cluster.ray_internals import state

NodeResources = dict[str, float]
HOST_AND_PORT = re.compile(r"[^:/\s]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")  # other addresses are Ray's to judge
HEAD_WAIT_SECONDS, HEAD_POLL_SECONDS = 10.0, 0.5  # for a head that is about to start


def connect_to_cluster(worker_setup: Callable[[], None] | None = None) -> None:
    """Join a cluster (RAY_ADDRESS, that of a submitted job, or one on this machine), or else start one here.

    Every worker process of this job calls `worker_setup` when it starts; Ray takes it along by value.
    """
    # a controller polls its workers and passes their reports on this often; with the default, 2 s, a report takes 2 s
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")
    if not ray.is_initialized():
        start_or_join_ray({"worker_process_setup_hook": worker_setup} if worker_setup else None)
    if len(node_resources()) == 1 and not autoscaler_node_types():
        # the watcher for nodes about to be preempted starts beside the workers and slows their first seconds
        os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")


def start_or_join_ray(runtime_env: dict[str, Any] | None = None) -> None:
    """Call `ray.init`, and keep the command's own handler of SIGTERM: Ray's would end it without a word."""
    require_answering_head(os.environ.get("RAY_ADDRESS", ""))
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with sigterm_exit_as_ctrl_c():
            # for one job a dashboard would take as long to start as everything else
            ray.init(
                logging_level=logging.WARNING, log_to_driver=False, include_dashboard=False, runtime_env=runtime_env
            )
    except ValueError as error:  # Ray's, for a RAY_ADDRESS that is none
        raise EquipoiseError("option-format", str(error)) from error
    finally:
        with suppress(ValueError):  # outside the main thread, where Ray sets no handler either
            signal.signal(signal.SIGTERM, handler)


def require_answering_head(address: str, wait_seconds: float = HEAD_WAIT_SECONDS) -> None:
    """Refuse the address HOST:PORT of a cluster where nothing answers: Ray would try it for ever."""
    deadline = time.monotonic() + wait_seconds
    while HOST_AND_PORT.fullmatch(address) and not accepts_connections(address):
        if time.monotonic() > deadline:
            raise EquipoiseError(
                "cluster-unreachable",
                f"cannot reach the Ray cluster at RAY_ADDRESS {address}: nothing answers there",
                "start the cluster, or unset RAY_ADDRESS to find or start Ray on this machine",
            )
        time.sleep(HEAD_POLL_SECONDS)


@contextmanager
def sigterm_exit_as_ctrl_c() -> Iterator[None]:
    """Make the exit by which Ray's own handler answers a SIGTERM a KeyboardInterrupt, as everywhere in a command."""
    try:
        yield
    except SystemExit as error:
        if error.code != signal.SIGTERM:
            raise
        raise KeyboardInterrupt from None


def set_worker_group_timeout(elastic: bool) -> int:
    """Set how long a worker group waits for its slots; return how often it may fail to get them before a run fails.

    An elastic group waits only briefly for a lost node and continues with the workers that are left. Others wait as
    long as an autoscaling cluster takes to start a node: Ray Train waits a minute, machines take three to five.
    """
    seconds, attempts = (10, 60) if elastic else (600 if autoscaler_node_types() else 60, 3)
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = str(seconds)
    return attempts


def exit_at_once(status: int) -> NoReturn:
    """Exit this process at once; its work on the cluster ends too, and so does a cluster that was started for it.

    With `ray.shutdown`, a thread that waits for Ray would end the process with another exit status.
    """
    kill_own_ray()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def kill_own_ray() -> None:
    """Kill the Ray that this process started; a cluster that it only joined goes on.

    The raylet is suspended instead: this process would end with an exit status of Ray's if the raylet ended first. The
    kernel kills the raylet when this process is gone.
    """
    processes = find_descendants(os.getpid())
    raylets = set(filter(is_raylet, processes))
    with suppress(psutil.NoSuchProcess):
        for raylet in raylets:
            raylet.suspend()
    for process in processes - raylets:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def node_resources() -> list[NodeResources]:
    """Return the resources of each node that is alive."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def autoscaler_node_types() -> list[tuple[NodeResources, int]]:
    """Return (resources of a node, maximum count) of each node type that the autoscaler may add; empty if unknown.

    Ray itself does not set these limits: `jobs.cluster.limits` does.
    """
    config = state.get_cluster_config()
    return [(dict(group.resources), group.max_count) for group in config.node_group_configs] if config else []


def worker_resources(threads: int, gpu: bool) -> NodeResources:
    """Return the resources that a worker reserves: its CPUs, and a GPU if it trains on one."""
    return {"CPU": threads, **({"GPU": 1} if gpu else {})}


def slots_on_node(node: NodeResources, threads: int, gpu: bool) -> int:
    """Return the number of workers that a node can hold."""
    slots = int(node.get("CPU", 0)) // threads
    return min(slots, int(node.get("GPU", 0))) if gpu else slots


def total_slots(threads: int, gpu: bool) -> int:
    """Return the number of workers that the present nodes can hold, busy or not."""
    return sum(slots_on_node(node, threads, gpu) for node in node_resources())


def free_slots(threads: int, gpu: bool) -> int:
    """Return the number of workers that can be placed at once."""
    return sum(slots_on_node(node, threads, gpu) for node in state.available_resources_per_node().values())


def max_slots(threads: int, gpu: bool) -> int:
    """Return the number of workers that the cluster can hold when it has grown as far as it may."""
    grown = sum(count * slots_on_node(node, threads, gpu) for node, count in autoscaler_node_types())
    if grown:  # the bound on all nodes together may be lower than the sum over their types
        grown = min(grown, slots_on_node(state.get_max_resources_from_cluster_config() or {}, threads, gpu))
    return max(grown, total_slots(threads, gpu))


def format_slots(workers: int, threads: int, gpu: bool, qualifier: str = "") -> str:
    """Format a number of worker slots, such as '3 slots of 1 CPU and a GPU'."""
    return f"{pluralize(workers, f'{qualifier}slot')} of {threads} CPU{' and a GPU' * gpu}"


def describe_cluster() -> str:
    """Return the address of the cluster and its number of nodes as text."""
    nodes = len(node_resources())
    return f"Ray at {ray.get_runtime_context().gcs_address}, {pluralize(nodes, 'node')}"


def require_slots(workers: int, threads: int) -> tuple[int, bool]:
    """Return how many workers the cluster can hold and whether each gets a GPU; refuse a run that needs more."""
    gpu = any(node.get("GPU", 0) for node in [*node_resources(), *(node for node, _ in autoscaler_node_types())])
    capacity = max_slots(threads, gpu)
    if workers > capacity:
        limits_unknown = not total_slots(1, False) and not autoscaler_node_types()
        hint = "; if it autoscales, run python -m jobs.cluster.limits on its head to tell jobs its limits"
        raise EquipoiseError(
            "cluster-too-small",
            f"cannot run {pluralize(workers, 'worker')}: the cluster holds at most "
            f"{format_slots(capacity, threads, gpu)}",
            "choose fewer --workers or fewer --threads, or add nodes "
            f"(--grad-accumulation gives the same global batch){hint * limits_unknown}",
        )
    return capacity, gpu


def warn_if_temporary_folder(out: Path) -> None:
    """Warn where a relative path would lead into a submitted job's temporary copy of the working directory."""
    if not out.is_absolute() and "working_dir_files" in Path.cwd().parts:
        print(
            f"note: {out} lies in this job's temporary copy of its working directory, {Path.cwd()}, "
            "which Ray deletes later: give an absolute path that all nodes share to keep what is written",
            file=sys.stderr,
        )
