"""Hardware that the workers of a run will have."""

import sys

import ray
import torch

from equipoise.formatting import make_printable
from equipoise.hardware import describe_hardware
from equipoise.hardware_facts import HardwareFacts
from equipoise.planning.training_setup import describe_device_mismatch, describe_version_mismatch
from jobs.cluster.resources import node_resources, worker_resources


def print_machine_notes(planned: HardwareFacts, used: HardwareFacts) -> None:
    """Print notes if a plan was measured on another kind of device or with other versions than those used."""
    for note in (describe_device_mismatch(planned, used), describe_version_mismatch(planned, used)):
        if note:
            print(make_printable(f"note: {note}"), file=sys.stderr, flush=True)


def find_worker_hardware(threads: int, gpu: bool) -> HardwareFacts:
    """Describe the node of a free worker slot; on a cluster of one node, that of this process."""
    device = torch.device("cuda" if gpu else "cpu")
    if len(node_resources()) == 1:
        return describe_hardware(device)
    resources = worker_resources(threads, gpu)
    describe = ray.remote(num_cpus=resources["CPU"], num_gpus=resources.get("GPU", 0))(describe_hardware)
    facts: HardwareFacts = ray.get(describe.remote(device))
    return facts
