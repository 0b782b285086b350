"""What clients notice of swaps, killed replicas, overload and slow clients: python -m benchmarks.fault_tolerance.

Each figure stands beside a baseline of the same undisturbed service, measured just before.
"""

import json
import os
import signal
import socket
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.http_clients import WARM_UP_SECONDS, BurstResult, build_request, run_burst
from benchmarks.server_processes import deploy_application
from benchmarks.serving import render_png
from equipoise.bundle.folder import verify_bundle
from equipoise.hardware import describe_hardware
from jobs.cluster.processes import find_free_ports, wait_until
from tests.support.bundles import publish_run, train_short_run
from tests.support.ray_cluster import Cluster, list_descendants, start_cluster

CLIENTS, SWAPS, BURST_SECONDS, SLOW_CLIENTS, ROUNDS = 8, 20, 5.0, 100, 5
PREDICT_REQUEST = build_request("/predict", render_png(1, 28), "image/png")


class MeasuredService:
    """The service under test, on its own Ray cluster."""

    def __init__(self, cluster: Cluster, port: int) -> None:
        self.cluster = cluster
        self.port = port

    def deploy(self, path: Path, replicas: int) -> None:
        """Deploy a bundle, and wait until all replicas answer with its version."""
        predictor = {"name": "Predictor", "num_replicas": replicas, "user_config": {"lenet": {"bundle": str(path)}}}
        application: dict[str, Any] = {"name": "ours", "route_prefix": "/", "import_path": "services.app:build"}
        deploy_application(self.cluster, application | {"args": {"port": self.port}, "deployments": [predictor]})
        version = verify_bundle(path).version
        wait_until(
            lambda: (
                len(self.find_replica_pids()) == replicas and all(version == self.read_version() for _ in range(12))
            ),
            120,
        )

    def read_version(self) -> str:
        """Return the model version that a replica answers with, or an empty string if none answers."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/models")
            version: str = json.loads(connection.getresponse().read())["models"][0]["current"]["version"]
        except (OSError, HTTPException):
            return ""
        else:
            return version
        finally:
            connection.close()

    def find_replica_pids(self) -> list[int]:
        """Return the process ids of the replicas."""
        return [
            pid for pid, command in list_descendants(self.cluster.head_pid).items() if "ServeReplica:ours" in command
        ]

    def measure_baseline(self, clients: int = CLIENTS) -> BurstResult:
        """Measure the service while nothing disturbs it."""
        return run_burst(self.port, PREDICT_REQUEST, clients, BURST_SECONDS)

    def measure_during(self, disturb: Callable[[], None]) -> BurstResult:
        """Measure the service during a disturbance and for a second after it."""
        thread = threading.Thread(target=lambda: (time.sleep(2 * WARM_UP_SECONDS), disturb(), time.sleep(1)))
        thread.start()
        result = run_burst(self.port, PREDICT_REQUEST, CLIENTS, ended=lambda: not thread.is_alive())
        thread.join()
        return result


def main() -> None:
    """Print what clients see under each kind of disturbance."""
    print(describe_hardware(torch.device("cpu")))
    with TemporaryDirectory() as name, start_cluster(RAY_worker_niceness="0") as cluster:
        folder = Path(name)
        bundles = [
            publish_run(
                train_short_run(folder / f"run-{seed}", "benchmarks.served_models:lenet", 320, seed),
                folder / f"lenet-{seed}",
            )
            for seed in (0, 1)
        ]
        service = MeasuredService(cluster, find_free_ports(1)[0])
        service.deploy(bundles[0], 1)
        measure_overload(service)
        for replicas in (1, 2):
            service.deploy(bundles[0], replicas)
            measure_swaps(service, bundles, replicas)
        measure_replica_kills(service)
        service.deploy(bundles[0], 1)
        measure_slow_clients(service)


def measure_swaps(service: MeasuredService, bundles: list[Path], replicas: int) -> None:
    """Print what clients see while bundles are swapped under load."""

    def swap_bundles() -> None:
        for turn in range(SWAPS):
            service.deploy(bundles[(turn + 1) % 2], replicas)

    baseline, result = service.measure_baseline(), service.measure_during(swap_bundles)
    print_burst(f"{SWAPS} swaps, replicas: {replicas}", result)
    baseline_p99, longest = 1000 * baseline.latency_quantile(0.99), 1000 * max(result.latencies)
    print(
        f"  longest {longest:.0f} ms, p99 {1000 * result.latency_quantile(0.99):.0f};"
        f" undisturbed p99 {baseline_p99:.0f} ms, longest {1000 * max(baseline.latencies):.0f};"
        f" longest during swaps is {longest / baseline_p99:.1f} times the undisturbed p99",
        flush=True,
    )


def measure_replica_kills(service: MeasuredService) -> None:
    """Print what clients see while one of two replicas is killed and replaced."""
    for _ in range(ROUNDS):

        def kill_replica() -> None:
            victim = service.find_replica_pids()[0]
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda: victim not in service.find_replica_pids() and len(service.find_replica_pids()) == 2, 60)

        baseline, result = service.measure_baseline(), service.measure_during(kill_replica)
        print_burst("kill -9 of one of two replicas", result)
        print(
            f"  longest time without a reply {1000 * result.longest_gap_seconds:.0f} ms;"
            f" undisturbed {1000 * baseline.longest_gap_seconds:.0f}",
            flush=True,
        )
        wait_until(lambda: len(service.find_replica_pids()) == 2 and all(service.read_version() for _ in range(12)), 60)


def measure_overload(service: MeasuredService) -> None:
    """Print the rate with more clients than may wait, where refused ones retry at once or after a second."""
    rates_by_count: dict[int, list[float]] = {64: [], 128: []}
    rates_by_retry: dict[str, list[float]] = {"at once": [], "after a second, as the reply asks": []}
    for _ in range(ROUNDS):
        for count, rates in rates_by_count.items():
            rates.append(service.measure_baseline(count).replies_per_second)
        for (name, rates), pause in zip(rates_by_retry.items(), (0.0, 1.0), strict=True):
            result = run_burst(service.port, PREDICT_REQUEST, 400, BURST_SECONDS, pause=pause)
            print_burst(f"400 clients, refused ones retry {name}", result)
            rates.append(result.replies_per_second)
    best_rates = max(rates_by_count.values(), key=statistics.median)
    for name, rates in rates_by_retry.items():
        ratio = statistics.median(rate / best for rate, best in zip(rates, best_rates, strict=True))
        print(f"  {name}: {ratio:.2f} of the best rate", flush=True)


def measure_slow_clients(service: MeasuredService) -> None:
    """Print the rate of normal clients beside clients that stop in the middle of a request."""
    ratios = []
    for _ in range(ROUNDS):
        baseline = service.measure_baseline()
        connections = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(SLOW_CLIENTS)]
        for index, connection in enumerate(connections):
            connection.sendall(PREDICT_REQUEST[: 20 if index % 2 else -10])
        result = service.measure_baseline()
        ratios.append(result.replies_per_second / baseline.replies_per_second)
        replies = [b"".join(iter(partial(connection.recv, 4096), b"")) for connection in connections]
        print(f"{sum(reply.startswith(b'HTTP/1.1 408') for reply in replies)} of {SLOW_CLIENTS} slow clients got a 408")
    print(f"  beside them {statistics.median(ratios):.2f} of the undisturbed rate", flush=True)


def print_burst(title: str, result: BurstResult) -> None:
    """Print the statuses, retries, losses and rate of a burst."""
    statuses = ", ".join(f"{count} with {status}" for status, count in sorted(result.statuses.items()))
    print(
        f"{title}: {statuses}; {result.retried} retried, {result.lost} lost; {result.replies_per_second:.0f} replies/s",
        flush=True,
    )


if __name__ == "__main__":
    main()
