"""The service beside a bare FastAPI handler that runs the same ONNX file, under the load of wrk, in turns.

python -m benchmarks.serving_same_engine [--rounds 6] [--only lenet] [--bundles FOLDER]

Everything of the service is on: API key, limits, drift, captures and metrics. The handler checks nothing and keeps
nothing. The images are hundreds of different ones of the vending machine, so that no drift is reported. CPU time is
that of all processes of a server, Ray's own included. Needs wrk (apt-get install wrk).
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from benchmarks.drift.image_pool import CLEAN_FIRST_INDEX, SEED
from benchmarks.http_clients import build_request, read_tree_cpu_seconds
from benchmarks.server_processes import Server, deploy_application, is_answering, run_server_process, signal_server
from benchmarks.serving import API_KEY
from equipoise.config import TrainConfig
from equipoise.hardware import describe_hardware
from equipoise.images.png import encode_png
from equipoise.training.loop import Training
from equipoise.workloads.vending.products import MACHINE_PRODUCTS
from equipoise.workloads.vending.renderer import render_images
from jobs.cluster.processes import find_free_ports, wait_until
from tests.support.bundles import publish_run, write_run_folder
from tests.support.ray_cluster import start_cluster

CLIENT_COUNTS, BURST_SECONDS, IMAGE_COUNT = (1, 8, 64), 6, 500
LUA_SCRIPT = Path(__file__).parent / "servers" / "post_images.lua"
MODELS = {
    "lenet": TrainConfig(workload="vending", batch_size=32, lr=0.05, max_examples=6400, target=2.0),
    "mobilenet": TrainConfig(
        workload="vending", model="mobilenet_v3_small", image_size=224, batch_size=32, max_examples=640, target=2.0
    ),
}


@dataclass(frozen=True)
class WrkResult:
    """What wrk reports of one burst, and the CPU time of the server meanwhile."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    failed: int
    cpu_seconds: float

    @property
    def rate(self) -> float:
        """Return the requests per second."""
        return self.requests / self.seconds

    @property
    def cpu_ms(self) -> float:
        """Return the CPU milliseconds per request."""
        return 1000 * self.cpu_seconds / self.requests


def main() -> None:
    """Print a table for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", choices=MODELS, help="model to measure")
    parser.add_argument("--clients", type=int, nargs="*", default=CLIENT_COUNTS, help="numbers of connections")
    parser.add_argument("--bundles", type=Path, help="folder that keeps the published models for the next time")
    arguments = parser.parse_args()
    if not shutil.which("wrk"):
        sys.exit("wrk is not installed: apt-get install wrk")
    print(describe_hardware(torch.device("cpu")))
    with TemporaryDirectory() as name:
        for model in [arguments.only] if arguments.only else MODELS:
            bundle = publish_model(model, arguments.bundles or Path(name))
            images = write_images(Path(name) / f"{model}-images", MODELS[model].image_size or 64)
            with serve_both(Path(name) / f"{model}-service", bundle, images) as servers:
                measure_and_print(model, servers, images, arguments.clients, arguments.rounds)


def publish_model(model: str, folder: Path) -> Path:
    """Train and publish a model with its drift reference, unless the folder holds it, and return its bundle."""
    bundle = folder / f"{model}-bundle"
    if not bundle.exists():
        training = Training(MODELS[model])
        for _ in training.laps():
            pass
        publish_run(write_run_folder(training, folder / f"{model}-run"), bundle, drift=True)
    return bundle


def write_images(folder: Path, pixels: int) -> Path:
    """Write different images of the vending machine as PNG, with names.txt, the list of them; return the folder."""
    folder.mkdir()
    indices = np.arange(CLEAN_FIRST_INDEX, CLEAN_FIRST_INDEX + IMAGE_COUNT)
    images, _ = render_images(MACHINE_PRODUCTS, indices, SEED, pixels, None)
    for index, image in enumerate(images):
        (folder / f"{index}.png").write_bytes(encode_png(image))
    (folder / "names.txt").write_text("".join(f"{index}.png\n" for index in range(len(images))))
    return folder


@contextmanager
def serve_both(folder: Path, bundle: Path, images: Path) -> Iterator[dict[str, Server]]:
    """Serve a bundle with the bare handler and with the service, and yield both servers by name."""
    folder.mkdir()
    ports = find_free_ports(2)
    message = build_request("/predict", (images / "0.png").read_bytes(), "image/png", x_api_key=API_KEY)
    log_flags = ("--no-access-log", "--log-level", "warning")
    command = [sys.executable, "-m", "uvicorn", "benchmarks.servers.fastapi_onnx_app:app", *log_flags]
    command += ["--port", str(ports[0])]
    with ExitStack() as stack:
        bare = stack.enter_context(run_server_process(command, {"BENCH_BUNDLE": str(bundle)}, ports[0], message))
        cluster = stack.enter_context(start_cluster(RAY_worker_niceness="0"))
        (folder / "keys").write_text(API_KEY)
        (folder / "keys").chmod(0o600)
        service_arguments = {"bundle": str(bundle), "port": ports[1], "api_keys_file": str(folder / "keys")}
        service_arguments |= {"capture_dir": str(folder / "captures"), "state_dir": str(folder / "state")}
        application = {"name": "ours", "route_prefix": "/", "import_path": "services.app:build"}
        deploy_application(cluster, application | {"args": service_arguments})
        wait_until(lambda: is_answering(ports[1], message), 120)
        yield {"bare FastAPI": bare, "Equipoise": Server(ports[1], message, [cluster.head_pid])}


def measure_and_print(
    model: str, servers: dict[str, Server], images: Path, client_counts: list[int], rounds: int
) -> None:
    """Measure both servers in turns at each number of connections, and print a table of medians."""
    print(f"\n{model}, PNG of {MODELS[model].image_size or 64} pixels, {rounds} rounds in turns\n")
    print("| connections | server | requests/s | ratio | CPU ms | ratio | p50 ms | p99 ms | ratio | failed |")
    print("|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for count in client_counts:
        results: dict[str, list[WrkResult]] = {name: [] for name in servers}
        for _ in range(rounds):
            for name, server in servers.items():
                results[name].append(run_wrk(server, images, count))
        print_rows(count, results)


def run_wrk(server: Server, images: Path, client_count: int) -> WrkResult:
    """Let wrk post the images over a number of connections, while the other server is paused."""
    signal_server(server, signal.SIGCONT)
    command = ["wrk", "-t1", f"-c{client_count}", f"-d{BURST_SECONDS}", "--timeout", "30", "-s", str(LUA_SCRIPT)]
    environment = os.environ | {"IMAGE_FOLDER": str(images), "API_KEY": API_KEY}
    cpu_before = read_tree_cpu_seconds(server.roots)
    result = subprocess.run(
        [*command, f"http://127.0.0.1:{server.port}/predict"], env=environment, check=True, capture_output=True
    )
    cpu_seconds = read_tree_cpu_seconds(server.roots) - cpu_before
    signal_server(server, signal.SIGSTOP)
    return WrkResult(**json.loads(result.stdout.splitlines()[-1]), cpu_seconds=cpu_seconds)


def print_rows(client_count: int, results: dict[str, list[WrkResult]]) -> None:
    """Print the medians of each server, and the median over rounds of each ratio to the first one."""
    baseline = next(iter(results.values()))
    for name, rounds in results.items():
        pairs = [*zip(rounds, baseline, strict=True)]
        cells = [str(client_count), name]
        for values, ratios, digits in (
            ([result.rate for result in rounds], [result.rate / first.rate for result, first in pairs], 0),
            ([result.cpu_ms for result in rounds], [result.cpu_ms / first.cpu_ms for result, first in pairs], 3),
            ([result.p50_ms for result in rounds], None, 2),
            ([result.p99_ms for result in rounds], [result.p99_ms / first.p99_ms for result, first in pairs], 2),
        ):
            cells.append(f"{statistics.median(values):,.{digits}f}")
            if ratios is not None:
                cells.append(f"{statistics.median(ratios):.2f}")
        cells.append(str(sum(result.failed for result in rounds)))
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
