"""What clients notice of swaps, a killed replica, too many of them, and slow ones: python -m benchmarks.fault_tolerance

Each figure stands beside one of the same service in peace, taken just before.
"""

import json
import os
import signal
import socket
import statistics
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.http_clients import WARM_UP, Burst, burst, request
from benchmarks.serving import deployed, picture
from equipoise.bundle.manifest import verify_bundle
from equipoise.hardware import describe_hardware
from jobs.cluster.processes import find_free_ports, wait_until
from tests.support.bundles import published, short_run
from tests.support.ray_cluster import Cluster, descendants, running

CLIENTS, SWAPS, SECONDS, SLOW, ROUNDS = 8, 20, 5.0, 100, 5
ASKED = request("/predict", picture(1, 28), "image/png")


class Ours:
    """The service on a cluster of its own."""

    def __init__(self, cluster: Cluster, port: int) -> None:
        self.cluster = cluster
        self.port = port

    def put(self, path: Path, replicas: int) -> None:
        """Deploy a bundle, and wait until nothing else answers."""
        predictor = {"name": "Predictor", "num_replicas": replicas, "user_config": {"lenet": {"bundle": str(path)}}}
        application: dict[str, Any] = {"name": "ours", "route_prefix": "/", "import_path": "services.app:build"}
        deployed(self.cluster, application | {"args": {"port": self.port}, "deployments": [predictor]})
        version = verify_bundle(path)["digest"][:12]
        wait_until(lambda: len(self.replicas()) == replicas and all(version == self.version() for _ in range(12)), 120)

    def version(self) -> str:
        """Which a replica answers with."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/models")
            found: str = json.loads(connection.getresponse().read())["models"][0]["current"]["version"]
        except (OSError, HTTPException):
            return ""
        else:
            return found
        finally:
            connection.close()

    def replicas(self) -> list[int]:
        """Their processes."""
        return [pid for pid, command in descendants(self.cluster.head_pid).items() if "ServeReplica:ours" in command]

    def peace(self, at_a_time: int = CLIENTS) -> Burst:
        """A stretch in which nothing happens."""
        return burst(self.port, ASKED, at_a_time, SECONDS)

    def during(self, what: Callable[[], None]) -> Burst:
        """The stretch in which something does, and a second more."""
        thread = threading.Thread(target=lambda: (time.sleep(2 * WARM_UP), what(), time.sleep(1)))
        thread.start()
        seen = burst(self.port, ASKED, CLIENTS, ended=lambda: not thread.is_alive())
        thread.join()
        return seen


def main() -> None:
    """Print what was seen."""
    print(", ".join(f"{name} {value}" for name, value in describe_hardware(torch.device("cpu")).items()))
    with TemporaryDirectory() as name, running(RAY_worker_niceness="0") as cluster:
        place = Path(name)
        bundles = [
            published(
                short_run(place / f"run-{seed}", "benchmarks.served_models:lenet", 320, seed), place / f"lenet-{seed}"
            )
            for seed in (0, 1)
        ]
        ours = Ours(cluster, find_free_ports(1)[0])
        ours.put(bundles[0], 1)
        crowded(ours)
        for replicas in (1, 2):
            ours.put(bundles[0], replicas)
            swapped(ours, bundles, replicas)
        killed(ours)
        ours.put(bundles[0], 1)
        slow(ours)


def swapped(ours: Ours, bundles: list[Path], replicas: int) -> None:
    """Twenty swaps under load."""

    def swaps() -> None:
        for turn in range(SWAPS):
            ours.put(bundles[(turn + 1) % 2], replicas)

    peace, seen = ours.peace(), ours.during(swaps)
    report(f"{SWAPS} swaps, replicas: {replicas}", seen)
    p99, most = 1000 * peace.quantile(0.99), 1000 * max(seen.latencies)
    print(f"  longest {most:.0f} ms, p99 {1000 * seen.quantile(0.99):.0f}; in peace p99 {p99:.0f} ms, longest ", end="")
    print(f"{1000 * max(peace.latencies):.0f}; longest in swaps is {most / p99:.1f} of p99 in peace", flush=True)


def killed(ours: Ours) -> None:
    """One of two replicas is killed, and comes back."""
    for _ in range(ROUNDS):

        def kill() -> None:
            victim = ours.replicas()[0]
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda: victim not in ours.replicas() and len(ours.replicas()) == 2, 60)

        peace, seen = ours.peace(), ours.during(kill)
        report("kill -9 of one of two replicas", seen)
        print(f"  longest time without a reply {1000 * seen.gap:.0f} ms; in peace {1000 * peace.gap:.0f}", flush=True)
        wait_until(lambda: len(ours.replicas()) == 2 and all(ours.version() for _ in range(12)), 60)


def crowded(ours: Ours) -> None:
    """More clients than may wait, those refused coming again at once, or when they were told to."""
    best: dict[int, list[float]] = {64: [], 128: []}
    kept: dict[str, list[float]] = {"at once": [], "after a second, as they are told": []}
    for _ in range(ROUNDS):
        for count, rates in best.items():
            rates.append(ours.peace(count).rate)
        for (name, rates), pause in zip(kept.items(), (0.0, 1.0), strict=True):
            seen = burst(ours.port, ASKED, 400, SECONDS, pause=pause)
            report(f"400 clients, those refused come again {name}", seen)
            rates.append(seen.rate)
    most = max(best.values(), key=statistics.median)
    for name, rates in kept.items():
        ratio = statistics.median(found / peace for found, peace in zip(rates, most, strict=True))
        print(f"  {name}: {ratio:.2f} of the best rate", flush=True)


def slow(ours: Ours) -> None:
    """Clients that stop in the middle of a request, beside those that do not."""
    ratios = []
    for _ in range(ROUNDS):
        peace = ours.peace()
        held = [socket.create_connection(("127.0.0.1", ours.port)) for _ in range(SLOW)]
        for place, one in enumerate(held):
            one.sendall(ASKED[: 20 if place % 2 else -10])
        seen = ours.peace()
        ratios.append(seen.rate / peace.rate)
        said = [b"".join(iter(lambda one=one: one.recv(4096), b"")) for one in held]  # type: ignore[misc]
        print(f"{sum(text.startswith(b'HTTP/1.1 408') for text in said)} of {SLOW} slow clients were told 408")
    print(f"  beside them {statistics.median(ratios):.2f} of the rate in peace", flush=True)


def report(what: str, seen: Burst) -> None:
    """What became of requests."""
    told = ", ".join(f"{count} with {status}" for status, count in sorted(seen.statuses.items()))
    print(f"{what}: {told}; {seen.again} tried once more, {seen.lost} lost; {seen.rate:.0f} replies/s", flush=True)


if __name__ == "__main__":
    main()
