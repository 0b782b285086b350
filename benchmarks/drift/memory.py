"""Memory and disk space of a service while requests go on: python -m benchmarks.drift.memory [--requests N]"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.drift.end_to_end import serve_vending
from benchmarks.http_clients import build_request, run_burst
from equipoise.hardware import describe_hardware
from equipoise.images.png import encode_png
from jobs.demo.traffic import SimulatedClients
from tests.support.ray_cluster import list_descendants, start_cluster

IMAGE_COUNT, CONNECTIONS, BURST_SECONDS, ROW_COUNT = 200, 16, 2.0, 10


def main() -> None:
    """Print the memory and disk space at the start and after each tenth of the requests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=200_000, help="number of requests to send")
    total = parser.parse_args().requests
    print(describe_hardware(torch.device("cpu")))
    with TemporaryDirectory() as name, start_cluster() as cluster, serve_vending(cluster, Path(name)) as vending:
        bodies = [
            build_request("/predict", encode_png(image), "image/png") for image in vending.render_images(IMAGE_COUNT)[0]
        ]
        print("| requests | replica, MiB | monitor, MiB | its folder, KiB | captures, KiB |\n|--:|--:|--:|--:|--:|")
        done, burst = 0, 0
        for row in range(ROW_COUNT + 1):
            while done < total * row / ROW_COUNT:
                done += len(run_burst(vending.port, bodies[burst % len(bodies)], CONNECTIONS, BURST_SECONDS).latencies)
                burst += 1
            print(format_memory_row(vending, cluster.head_pid, Path(name), done), flush=True)


def format_memory_row(vending: SimulatedClients, head_pid: int, folder: Path, done: int) -> str:
    """Measure memory (MiB) and disk space (KiB) now and format them as a row of the table."""
    processes = list_descendants(head_pid)
    memory = [
        sum(read_private_mib(pid) for pid, command in processes.items() if kind in command)
        for kind in ("Replica", "ray::Drift")
    ]
    disk = [
        sum(file.stat().st_size for file in (folder / part).rglob("*") if file.is_file()) // 1024
        for part in ("state", "kept")
    ]
    verdict = vending.request_service("GET", "/drift")
    return f"| {done:,} ({verdict['images']:,}) | {memory[0]:.1f} | {memory[1]:.1f} | {disk[0]:,} | {disk[1]:,} |"


def read_private_mib(pid: int) -> float:
    """Return the memory of a process that it shares with no other, in MiB; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private", "Swap:"))) / 1024


if __name__ == "__main__":
    main()
