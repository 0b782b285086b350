"""Worker on the cluster that runs a user's training command, with the CPUs and GPUs of all its workers."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import ray
from ray.exceptions import GetTimeoutError, RayTaskError

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import pluralize
from equipoise.hardware_facts import HardwareFacts, describe_machine
from equipoise.runs.record import Record
from equipoise.storage.atomic import write_json
from equipoise.storage.object_store import RemotePath, parse_location
from jobs.cluster.resources import autoscaler_node_types, node_resources, slots_on_node, worker_resources
from jobs.user_command.command_process import start_reaper
from jobs.user_command.command_run import CommandFolders, CommandRun
from jobs.user_command.reaper import adopt_orphans, kill_children


@dataclass(frozen=True, kw_only=True)
class CommandProgress:
    """What a worker tells of the run it follows."""

    record: Record
    """what was measured so far"""
    command_seconds: float
    """seconds that the command has run"""
    worker_seconds: float
    """seconds since the worker was told to start it"""

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended."""
        return self.record.status != "running"


class CommandWorker:
    """Ray actor that runs one command at a time; what it has started dies with it."""

    def __init__(self) -> None:
        self.mark = uuid4().hex
        self.reaper = start_reaper(self.mark)
        self.reaper.wait()
        adopt_orphans()
        self.machine: HardwareFacts = describe_machine()
        self.run: CommandRun | None = None

    def start(self, config: TrainConfig, folders: CommandFolders, record_path: str | None = None) -> None:
        """Start the command of a config; its record is written to `record_path` while it runs, if given."""
        self.started_at = time.monotonic()
        self.stop()
        files = parse_location(folders.files)
        if not isinstance(files, RemotePath):
            files.mkdir(parents=True, exist_ok=True)
        self.record_path = None if record_path is None else parse_location(record_path)
        working = folders.working if Path(folders.working).is_dir() else str(Path.cwd())
        self.run = CommandRun(config, folders._replace(working=working), self.mark)

    def follow(self, seconds: float) -> CommandProgress:
        """Follow the run for some seconds and return how far it is; less if it ends."""
        if self.run is None:
            raise RuntimeError("no run was started")
        self.run.follow(seconds)
        record = self.run.build_record(self.machine)
        if self.record_path is not None:
            write_json(self.record_path, record.to_json())
        return CommandProgress(
            record=record,
            command_seconds=self.run.process.run_seconds() if self.run.process else 0.0,
            worker_seconds=time.monotonic() - self.started_at,
        )

    def describe_output(self) -> str:
        """Return the last lines that the command printed, without secrets, on one line."""
        return self.run.process.describe_output() if self.run and self.run.process else ""

    def stop(self) -> None:
        """End the command and all that it has started."""
        if self.run is not None:
            self.run.stop()
            kill_children()


def get_result(reference: Any, timeout: float | None = None) -> Any:
    """Return what a method of a worker returned, or raise its error as it was raised there.

    Refuse a command whose output keeps the worker from answering within `timeout` seconds.
    """
    try:
        return ray.get(reference, timeout=timeout)
    except RayTaskError as error:
        raise error.cause from None
    except GetTimeoutError:
        raise EquipoiseError(
            "command-unusable",
            f"reading the output of the command took longer than {timeout:.0f} s",
            "give simpler patterns: some expressions take for ever on some lines",
        ) from None


def require_one_node(workers: int, threads: int, gpu: bool) -> None:
    """Refuse more workers than one node holds: a command starts its workers itself, beside each other."""
    nodes = [*node_resources(), *(node for node, _ in autoscaler_node_types())]
    largest = max((slots_on_node(node, threads, gpu) for node in nodes), default=0)
    if largest < workers:
        raise EquipoiseError(
            "cluster-too-small",
            f"cannot run a command on {pluralize(workers, 'worker')}: they share one node, and the largest holds"
            f" {largest}",
            "choose fewer workers",
        )


def create_command_worker(workers: int, threads: int, gpu: bool) -> Any:
    """Create a worker with the resources of so many workers of a command, all on one node."""
    resources = worker_resources(threads, gpu)
    options = {"num_cpus": workers * resources["CPU"], "num_gpus": workers * resources.get("GPU", 0)}
    return ray.remote(CommandWorker).options(**options).remote()
