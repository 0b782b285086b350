"""A parameter store of two Ray actors, as tutorials write it: python -m benchmarks.ray_parameter_server.

One actor holds the model and its optimizer, the others compute gradients. Weights and gradients are lists of arrays
that pass through the object store. Synchronous, an update waits for the gradients of all workers; asynchronous, the
server applies each gradient by itself as it arrives. Examples lie in memory, normalised, so that none is prepared.
"""

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import ray
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from torch import Tensor, nn

from benchmarks.training_case import LR, MOMENTUM, SEED, build_model, compute_scale, get_examples
from equipoise.config import TrainConfig
from equipoise.workloads import load_workload
from tests.network.store_steps import read_sent_bytes

Arrays = list[np.ndarray[Any, Any]]


class ModelCopy:
    """A model whose weights and gradients are read and written as arrays."""

    def __init__(self, workload_name: str) -> None:
        torch.set_num_threads(1)
        self.workload = load_workload(TrainConfig(workload=workload_name))
        self.model = build_model(self.workload)

    def get_weights(self) -> Arrays:
        return [parameter.detach().numpy() for parameter in self.model.parameters()]

    def set_weights(self, weights: Arrays) -> None:
        for parameter, values in zip(self.model.parameters(), weights, strict=True):
            parameter.data.copy_(torch.from_numpy(values.copy()))  # arrays of the object store cannot be written


@ray.remote(num_cpus=0)
class ParameterServer(ModelCopy):
    """The weights and their optimizer."""

    def __init__(self, workload_name: str) -> None:
        super().__init__(workload_name)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LR, momentum=MOMENTUM)

    def apply_gradients(self, *gradients: Arrays) -> Arrays:
        """Take a step along the mean of gradients and return the new weights."""
        for parameter, *parts in zip(self.model.parameters(), *gradients, strict=True):
            parameter.grad = torch.from_numpy(np.stack(parts).mean(axis=0))
        self.optimizer.step()
        return self.get_weights()


@ray.remote(num_cpus=1)
class GradientWorker(ModelCopy):
    """Gradients on a worker's own examples, in batches."""

    def __init__(self, workload_name: str, rank: int, batch: int) -> None:
        super().__init__(workload_name)
        self.batches = self.draw_batches(rank, batch)

    def draw_batches(self, rank: int, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches in a random order, epoch after epoch."""
        images, labels = get_examples(self.workload)
        gain, offset = compute_scale(self.workload)
        inputs = images * gain + offset
        generator = torch.Generator().manual_seed(SEED + rank)
        while True:
            for indices in torch.randperm(len(inputs), generator=generator).split(batch):
                if len(indices) == batch:
                    yield inputs[indices], labels[indices]

    def compute_gradients(self, weights: Arrays) -> Arrays:
        """Return the gradients of the next batch at these weights."""
        self.set_weights(weights)
        inputs, labels = next(self.batches)
        self.model.zero_grad()
        nn.functional.cross_entropy(self.model(inputs), labels).backward()
        return [parameter.grad.numpy() for parameter in self.model.parameters() if parameter.grad is not None]

    def describe_host(self) -> tuple[str, int]:
        """Return the id of this node in Ray, and the bytes that it has sent so far."""
        return ray.get_runtime_context().get_node_id(), read_sent_bytes()


class ActorStore:
    """The actors, with their server beside the first worker, and the steps that they have been given."""

    def __init__(self, workload_name: str, workers: int, batch: int) -> None:
        self.workers = [GradientWorker.remote(workload_name, rank, batch) for rank in range(workers)]
        node = self.describe_hosts()[0][0]
        beside = NodeAffinitySchedulingStrategy(node, soft=False)
        self.server = ParameterServer.options(scheduling_strategy=beside).remote(workload_name)
        self.weights = self.server.get_weights.remote()

    def describe_hosts(self) -> list[tuple[str, int]]:
        """Return the node and the bytes sent so far of each worker's host."""
        return ray.get([worker.describe_host.remote() for worker in self.workers])

    def take_synchronous_steps(self, count: int) -> None:
        """Take steps, each with a gradient of every worker."""
        for _ in range(count):
            gradients = [worker.compute_gradients.remote(self.weights) for worker in self.workers]
            self.weights = self.server.apply_gradients.remote(*gradients)
        ray.get(self.weights)

    def take_asynchronous_steps(self, count: int) -> None:
        """Apply as many gradients as so many synchronous steps have, each as soon as it is there."""
        pending = {worker.compute_gradients.remote(self.weights): worker for worker in self.workers}
        for applied in itertools.count(1):
            [gradient], _ = ray.wait(list(pending))
            worker = pending.pop(gradient)
            self.weights = self.server.apply_gradients.remote(gradient)
            if applied + len(pending) < count * len(self.workers):
                pending[worker.compute_gradients.remote(self.weights)] = worker
            if not pending:
                break
        ray.get(self.weights)


def main() -> None:
    """Print seconds of a step, and bytes that each worker's host sends in one, as a line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_parameter_server", description=__doc__)
    parser.add_argument("workload")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=50, help="steps timed, after as many that are not")
    parser.add_argument("--asynchronous", action="store_true")
    options = parser.parse_args()
    ray.init(log_to_driver=False)
    store = ActorStore(options.workload, options.workers, options.batch_size)
    take_steps = store.take_asynchronous_steps if options.asynchronous else store.take_synchronous_steps
    take_steps(options.steps)
    before = store.describe_hosts()
    start = time.perf_counter()
    take_steps(options.steps)
    seconds = (time.perf_counter() - start) / options.steps
    sent = [after - count for (_, after), (_, count) in zip(store.describe_hosts(), before, strict=True)]
    print(json.dumps({"seconds": seconds, "sent_bytes": [count / options.steps for count in sent]}), flush=True)


if __name__ == "__main__":
    main()
