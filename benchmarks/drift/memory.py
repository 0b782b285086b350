"""What a service keeps in memory and on disk while requests go on: python -m benchmarks.drift.memory [--requests N]"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.drift.end_to_end import served
from benchmarks.http_clients import burst, request
from equipoise.hardware import describe_hardware
from equipoise.images.png import encode_png
from jobs.demo.traffic import SimulatedClients
from tests.support.ray_cluster import descendants, running

PICTURES, AT_A_TIME, SECONDS, ROWS = 200, 16, 2.0, 10


def main() -> None:
    """Print a row now and then."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--requests", type=int, default=200_000)
    most = asked.parse_args().requests
    print(", ".join(f"{name} {value}" for name, value in describe_hardware(torch.device("cpu")).items()))
    with TemporaryDirectory() as name, running() as cluster, served(cluster, Path(name)) as vending:
        bodies = [
            request("/predict", encode_png(picture), "image/png") for picture in vending.render_images(PICTURES)[0]
        ]
        print("| requests | replica, MiB | monitor, MiB | its folder, KiB | captures, KiB |\n|--:|--:|--:|--:|--:|")
        done, turn = 0, 0
        for row in range(ROWS + 1):
            while done < most * row / ROWS:
                done += len(burst(vending.port, bodies[turn % len(bodies)], AT_A_TIME, SECONDS).latencies)
                turn += 1
            print(told(vending, cluster.head_pid, Path(name), done), flush=True)


def told(vending: SimulatedClients, head: int, place: Path, done: int) -> str:
    """A row."""
    processes = descendants(head)
    found = [
        sum(resident(pid) for pid, command in processes.items() if kind in command)
        for kind in ("Replica", "ray::Drift")
    ]
    disk = [
        sum(file.stat().st_size for file in (place / part).rglob("*") if file.is_file()) // 1024
        for part in ("state", "kept")
    ]
    seen = vending.request_service("GET", "/drift")
    return f"| {done:,} ({seen['images']:,}) | {found[0]:.1f} | {found[1]:.1f} | {disk[0]:,} | {disk[1]:,} |"


def resident(pid: int) -> float:
    """MiB of a process that nobody else has."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private", "Swap:"))) / 1024


if __name__ == "__main__":
    main()
