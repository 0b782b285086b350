"""Where the time of a step with a parameter store goes: python -m benchmarks.store_timeline.

Two hosts in network namespaces have a worker each, and the first one the server. Their clock is that of one machine, so
moments on both can be compared: a pull begins when the server has updated the weights and ends when the worker has
them, a push begins in a worker and ends when the server takes it.
"""

import argparse
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.training_case import LR, MOMENTUM, SEED
from equipoise.config import TrainConfig
from equipoise.hardware import describe_hardware
from equipoise.parameter_store.part_buffer import MessageKind
from equipoise.training.loop import Training
from tests.network.gloo_hosts import run_on_hosts
from tests.network.hosts import create_lan

WORKERS, STEPS = 2, 40  # of which the first half is not counted
Moments = dict[str, list[float]]


class MomentRecorder:
    """Moments at which calls begin and end, by name."""

    def __init__(self) -> None:
        self.moments: Moments = defaultdict(list)

    def watch(self, owner: Any, method: str, name: str) -> None:
        """Record each call of a method of one object."""
        call: Callable[..., Any] = getattr(owner, method)

        def watched(*arguments: Any) -> Any:
            self.moments[f"{name} begins"].append(time.monotonic())
            result = call(*arguments)
            self.moments[f"{name} ends"].append(time.monotonic())
            return result

        setattr(owner, method, watched)

    def watch_server(self, server: Any) -> None:
        """Record when a server takes the push of each worker, and its updates."""
        take: Callable[[Any], None] = server._take

        def watched(message: Any) -> None:
            if getattr(message, "kind", None) == MessageKind.PUSH:
                self.moments[f"push of {message.worker} is there"].append(time.monotonic())
            take(message)

        server._take = watched
        self.watch(server.part, "sum_gradients", "sum")
        self.watch(server.part, "update", "update")


def main() -> None:
    """Print the milliseconds of each part of a step, and when it begins."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store_timeline", description=__doc__)
    parser.add_argument("--workload", default="tests.network.wide_model:wide")
    parser.add_argument("--batch-size", type=int, default=64, help="examples per worker and step")
    parser.add_argument("--megabits", type=float, default=1000.0, help="rate of the links")
    options = parser.parse_args()
    print(f"{describe_hardware(torch.device('cpu'))}; load {os.getloadavg()[0]:.2f}")
    with create_lan(WORKERS, options.megabits) as hosts:
        moments = run_on_hosts(hosts, "benchmarks.store_timeline:record_steps", options.workload, options.batch_size)
    for name, spans in list_spans(moments).items():
        begins, ends = (statistics.median(column) for column in zip(*spans[STEPS // 2 :], strict=True))
        print(f"{name:20} from {1e3 * begins:7.2f} to {1e3 * ends:7.2f} ms, {1e3 * (ends - begins):7.2f} ms")


def record_steps(workload: str, batch: int) -> Moments:
    """Train one lap in this worker and return its moments."""
    examples = STEPS * batch * dist.get_world_size()
    config = TrainConfig(
        workload=workload,
        workers=dist.get_world_size(),
        batch_size=batch,
        lr=LR,
        momentum=MOMENTUM,
        seed=SEED,
        target=2.0,
        max_examples=examples,
        eval_every=examples,
        sync="server",
        servers=1,
    )
    training, recorder = Training(config), MomentRecorder()
    store = training.steps.store  # type: ignore[attr-defined]  # of this way of exchange
    recorder.watch(training.backward_pass, "run", "gradient")
    recorder.watch(store.client, "push", "push")
    recorder.watch(store.client, "pull", "pull")
    if store.server is not None:
        recorder.watch_server(store.server)
    for _ in training.laps():
        pass
    return recorder.moments


def list_spans(workers: list[Moments]) -> dict[str, list[tuple[float, float]]]:
    """Return by part of a step when it begins and ends in each step, in seconds since the update before it ended."""
    first = workers[0]
    origins = first["update ends"][:-1]

    def since_origin(begins: list[float], ends: list[float]) -> list[tuple[float, float]]:
        return [(a - origin, b - origin) for origin, a, b in zip(origins, begins, ends, strict=True)]

    spans = {}
    for rank, moments in enumerate(workers):
        spans[f"pull of {rank}"] = since_origin(origins, moments["pull ends"][:-1])
        spans[f"gradient of {rank}"] = since_origin(moments["gradient begins"][1:], moments["gradient ends"][1:])
        spans[f"push of {rank}"] = since_origin(moments["push begins"][1:], first[f"push of {rank} is there"][1:])
    return spans | {"update": since_origin(first["sum begins"][1:], first["update ends"][1:])}


if __name__ == "__main__":
    main()
