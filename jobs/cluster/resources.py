"""The Ray cluster that a job runs on: found or started, and asked what it can hold."""

import logging
import os
import sys
from pathlib import Path
from typing import NoReturn

import ray

from equipoise.formatting import pluralize
from jobs.cluster.ray_internals import kill_own_ray, state

NodeResources = dict[str, float]


def connect_to_cluster() -> None:
    """Join the cluster at hand (RAY_ADDRESS, a submitted job's, one running here) or start one on this machine."""
    # controllers of groups of workers look at them, and let reports pass, this often; their own 2 s are 2 s a report
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")
    if not ray.is_initialized():
        # a dashboard for the length of one job would take as long to start as all the rest
        ray.init(logging_level=logging.WARNING, log_to_driver=False, include_dashboard=False)
    if len(node_resources()) == 1 and not autoscaler_node_types():
        # what watches nodes that are about to be taken away starts beside the workers and slows their first seconds
        os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")


def set_worker_group_timeout(elastic: bool) -> int:
    """How often a group of workers may fail to find its places before a run is given up; how long it waits is set.

    One that can go on with fewer does not wait long for a node that was lost, and tries with what is there; others
    get the time in which a cluster that grows starts one for it: Ray Train waits a minute, machines take three to five.
    """
    seconds, times = (10, 60) if elastic else (600 if autoscaler_node_types() else 60, 3)
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = str(seconds)
    return times


def shutdown_and_exit(status: int) -> NoReturn:
    """End this process at once: what it still runs on the cluster ends with it, and so does a cluster started for it.

    `ray.shutdown` would make a thread that waits for Ray end the process, with a status of its own.
    """
    kill_own_ray()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def node_resources() -> list[NodeResources]:
    """Resources of each node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def autoscaler_node_types() -> list[tuple[NodeResources, int]]:
    """Resources of a node of each kind that an autoscaler may add, and how many of it; empty where none is known.

    Ray itself leaves the place empty: `jobs.cluster.limits` fills it.
    """
    config = state.get_cluster_config()
    return [(dict(one.resources), one.max_count) for one in config.node_group_configs] if config else []


def slots_on_node(node: NodeResources, threads: int, gpu: bool) -> int:
    """Workers that a node can hold."""
    held = int(node.get("CPU", 0)) // threads
    return min(held, int(node.get("GPU", 0))) if gpu else held


def total_slots(threads: int, gpu: bool) -> int:
    """Workers that the nodes there are can hold, idle or not."""
    return sum(slots_on_node(node, threads, gpu) for node in node_resources())


def free_slots(threads: int, gpu: bool) -> int:
    """Workers that find room at once."""
    return sum(slots_on_node(node, threads, gpu) for node in state.available_resources_per_node().values())


def max_slots(threads: int, gpu: bool) -> int:
    """Workers that the cluster can hold when it has grown as far as it may."""
    grown = sum(count * slots_on_node(node, threads, gpu) for node, count in autoscaler_node_types())
    if grown:  # no more of all kinds together than fit the number of nodes
        grown = min(grown, slots_on_node(state.get_max_resources_from_cluster_config() or {}, threads, gpu))
    return max(grown, total_slots(threads, gpu))


def format_slots(workers: int, threads: int, gpu: bool, qualifier: str = "") -> str:
    """That many slots, in words."""
    return f"{pluralize(workers, f'{qualifier}slot')} of {threads} CPU{' and a GPU' * gpu}"


def describe_cluster() -> str:
    """Which cluster this is, in words."""
    nodes = len(node_resources())
    return f"Ray at {ray.get_runtime_context().gcs_address}, {pluralize(nodes, 'node')}"


def require_slots(workers: int, threads: int) -> tuple[int, bool]:
    """How many workers the cluster can hold, and whether each gets a GPU; refuses at once more than that."""
    gpu = any(node.get("GPU", 0) for node in [*node_resources(), *(node for node, _ in autoscaler_node_types())])
    room = max_slots(threads, gpu)
    if workers > room:
        blind = not total_slots(1, False) and not autoscaler_node_types()
        raise ValueError(
            f"{workers} workers were asked for and the cluster holds {format_slots(room, threads, gpu)} at most: "
            "choose fewer --workers or fewer --threads, or add nodes (--grad-accumulation gives the same global batch)"
            + blind
            * "; if it grows by itself, python -m jobs.cluster.limits on its head tells jobs how far"
        )
    return room, gpu


def warn_if_temporary_folder(out: Path) -> None:
    """Warn where a relative path would lead into a submitted job's temporary copy of the working directory."""
    if not out.is_absolute() and "working_dir_files" in Path.cwd().parts:
        print(
            f"note: {out} lies in this job's temporary copy of its working directory, {Path.cwd()}, "
            "which Ray deletes later: give an absolute path that all nodes share to keep what is written",
            file=sys.stderr,
        )
