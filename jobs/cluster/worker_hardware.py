"""Hardware that the workers of a run will have."""

import ray
import torch

from equipoise.hardware import describe_hardware
from equipoise.hardware_facts import HardwareFacts
from jobs.cluster.resources import node_resources, worker_resources


def find_worker_hardware(threads: int, gpu: bool) -> HardwareFacts:
    """Describe the node of a free worker slot; on a cluster of one node, that of this process."""
    device = torch.device("cuda" if gpu else "cpu")
    if len(node_resources()) == 1:
        return describe_hardware(device)
    resources = worker_resources(threads, gpu)
    describe = ray.remote(num_cpus=resources["CPU"], num_gpus=resources.get("GPU", 0))(describe_hardware)
    facts: HardwareFacts = ray.get(describe.remote(device))
    return facts
