"""The Ray cluster that a job runs on: found or started, and asked what it can hold."""

import logging
import os
import sys
from pathlib import Path
from typing import NoReturn

import ray
from ray._private import worker
from ray._private.state import state  # the one place that knows an autoscaler's upper bounds; Ray is pinned


def connect() -> None:
    """Join the cluster at hand (RAY_ADDRESS, a submitted job's, one running here) or start one on this machine."""
    # controllers of groups of workers look at them, and let reports pass, this often; their own 2 s are 2 s a report
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")
    if not ray.is_initialized():
        # a dashboard for the length of one job would take as long to start as all the rest
        ray.init(logging_level=logging.WARNING, log_to_driver=False, include_dashboard=False)
    if len(alive()) == 1 and not ceiling():
        # what watches nodes that are about to be taken away starts beside the workers and slows their first seconds
        os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")


def patience(elastic: bool) -> int:
    """How often a group of workers may fail to find its places before a run is given up.

    One that can go on with fewer waits ten seconds for those that a lost node may still seem to have, and tries
    again with what is there; one that cannot waits for machines that take minutes to start, where there are such.
    """
    each, whole = (10, 600) if elastic else (60, 1200 if ceiling() else 240)
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = str(each)
    return whole // each


def leave(status: int) -> NoReturn:
    """End this process at once: what it still runs on the cluster ends with it, and so does a cluster started for it.

    `ray.shutdown` would make a thread that waits for Ray end the process, with a status of its own.
    """
    if node := worker._global_node:
        node.kill_all_processes(check_alive=False, allow_graceful=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def alive() -> list[dict[str, float]]:
    """Resources of each node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def ceiling() -> dict[str, float]:
    """Resources that an autoscaler may add up to; empty where nothing scales."""
    return state.get_max_resources_from_cluster_config() or {}


def place() -> str:
    """Which cluster this is, in words."""
    nodes = len(alive())
    return f"Ray at {ray.get_runtime_context().gcs_address}, {nodes} node{'s' * (nodes != 1)}"


def require_slots(workers: int, threads: int) -> tuple[int, bool]:
    """How many workers the cluster can hold, and whether each gets a GPU; refuses at once more than that."""
    most, nodes = ceiling(), alive()
    gpus = max(sum(node.get("GPU", 0) for node in nodes), most.get("GPU", 0))
    if gpus:
        held, what = int(gpus), "GPUs"
    else:
        now = sum(int(node.get("CPU", 0)) // threads for node in nodes)
        held, what = max(now, int(most.get("CPU", 0)) // threads), f"slots of {threads} CPU"
    if workers > held:
        raise ValueError(
            f"{workers} workers were asked for and the cluster holds {held} {what} at most: "
            "choose fewer --workers or fewer --threads, or add nodes (--accumulate gives the same global batch)"
        )
    return held, bool(gpus)


def note_place(out: Path) -> None:
    """Warn where a relative path would lead into a submitted job's temporary copy of the working directory."""
    if not out.is_absolute() and "working_dir_files" in Path.cwd().parts:
        print(
            f"note: {out} lies in this job's temporary copy of its working directory, {Path.cwd()}, "
            "which Ray deletes later: give an absolute path that all nodes share to keep what is written",
            file=sys.stderr,
        )
