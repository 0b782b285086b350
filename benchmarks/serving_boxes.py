"""The service of a detector beside an eager FastAPI handler of the same detector, under the load of wrk, in turns.

python -m benchmarks.serving_boxes [--rounds 6] [--folder FOLDER]

Everything of the service is on: API key, limits, drift, captures and metrics; its engine is the one chosen when the
detector was published. The handler checks nothing and keeps nothing. The pictures are hundreds of different ones of
shelves. Needs wrk (apt-get install wrk).
"""

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import Request, urlopen

import numpy as np
import torch

from benchmarks.drift.shelf_lights import FIRST_INDEX, publish_shelf
from benchmarks.http_clients import build_request
from benchmarks.server_processes import Server, deploy_application, is_answering, run_server_process
from benchmarks.serving import API_KEY
from benchmarks.serving_same_engine import CLIENT_COUNTS, IMAGE_COUNT, WrkResult, print_rows, run_wrk
from equipoise.bundle.bundle import load_bundle
from equipoise.hardware import describe_hardware
from equipoise.images.png import encode_png
from equipoise.workloads.detection.shelf import DEFAULT_PIXELS, RENDER_SEED
from equipoise.workloads.detection.shelf_renderer import render_shelves
from equipoise.workloads.vending.products import MACHINE_PRODUCTS
from jobs.cluster.processes import find_free_ports, wait_until
from tests.support.ray_cluster import start_cluster


def main() -> None:
    """Print a table of both servers at each number of connections."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--clients", type=int, nargs="*", default=CLIENT_COUNTS, help="numbers of connections")
    parser.add_argument("--folder", type=Path, help="folder that keeps the run and the bundle for the next time")
    parser.add_argument("--without-ray", action="store_true", help="serve by a replica alone, where Ray cannot start")
    arguments = parser.parse_args()
    if not shutil.which("wrk"):
        sys.exit("wrk is not installed: apt-get install wrk")
    print(describe_hardware(torch.device("cpu")))
    with TemporaryDirectory() as name:
        folder = arguments.folder or Path(name)
        if not (folder / "bundle").exists():
            publish_shelf(folder)
        print(f"engine: {load_bundle(str(folder / 'bundle')).manifest.engine.name}")
        images = write_shelf_files(Path(name) / "images")
        with serve_both(Path(name), folder, images, arguments.without_ray) as servers:
            print(f"\ndetector of shelves, PNG of {DEFAULT_PIXELS} pixels, {arguments.rounds} rounds in turns\n")
            print("| connections | server | requests/s | ratio | CPU ms | ratio | p50 ms | p99 ms | ratio | failed |")
            print("|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|")
            for count in arguments.clients:
                results: dict[str, list[WrkResult]] = {server: [] for server in servers}
                for _ in range(arguments.rounds):
                    for server_name, server in servers.items():
                        results[server_name].append(run_wrk(server, images, count))
                print_rows(count, results)
            if not arguments.without_ray:
                print(f"\n{describe_drift(servers['Equipoise'].port)}")


def describe_drift(port: int) -> str:
    """Return what the service says of the drift of the pictures that it has got."""
    request = Request(f"http://127.0.0.1:{port}/drift", headers={"x-api-key": API_KEY})
    with urlopen(request, timeout=30) as reply:  # noqa: S310 - the address is ours
        verdict = json.load(reply)
    return f"drift: {verdict['state']} after {verdict['images']:,} pictures of {IMAGE_COUNT} different ones"


def write_shelf_files(folder: Path) -> Path:
    """Write different pictures of shelves as PNG, with names.txt, the list of them; return the folder."""
    folder.mkdir()
    indices = np.arange(IMAGE_COUNT) + FIRST_INDEX
    pictures, _ = render_shelves(MACHINE_PRODUCTS, indices, RENDER_SEED, DEFAULT_PIXELS)
    for index, picture in enumerate(pictures):
        (folder / f"{index}.png").write_bytes(encode_png(picture))
    (folder / "names.txt").write_text("".join(f"{index}.png\n" for index in range(IMAGE_COUNT)))
    return folder


@contextmanager
def serve_both(folder: Path, published: Path, images: Path, without_ray: bool) -> Iterator[dict[str, Server]]:
    """Serve the detector with the eager handler and with the service, and yield both servers by name."""
    ports = find_free_ports(2)
    message = build_request("/predict", (images / "0.png").read_bytes(), "image/png", x_api_key=API_KEY)
    log_flags = ("--no-access-log", "--log-level", "warning")
    command = [sys.executable, "-m", "uvicorn", "benchmarks.servers.fastapi_boxes_app:app", *log_flags]
    variables = {"BENCH_BUNDLE": str(published / "bundle"), "BENCH_RUN": str(published / "run")}
    (folder / "keys").write_text(API_KEY)
    (folder / "keys").chmod(0o600)
    service_arguments = {"bundle": str(published / "bundle"), "port": ports[1], "api_keys_file": str(folder / "keys")}
    service_arguments |= {"capture_dir": str(folder / "captures"), "state_dir": str(folder / "state")}
    application = {"name": "ours", "route_prefix": "/", "import_path": "services.app:build", "args": service_arguments}
    with ExitStack() as stack:
        plain_command = [*command, "--port", str(ports[0])]
        plain = stack.enter_context(run_server_process(plain_command, variables, ports[0], message))
        if without_ray:
            replica_command = [sys.executable, "-m", "benchmarks.servers.detector_replica", str(ports[1])]
            replica = stack.enter_context(run_server_process(replica_command, variables, ports[1], message))
            yield {"eager FastAPI": plain, "Equipoise, replica alone": replica}
            return
        cluster = stack.enter_context(start_cluster(RAY_worker_niceness="0"))
        deploy_application(cluster, application)
        wait_until(lambda: is_answering(ports[1], message), 120)
        yield {"eager FastAPI": plain, "Equipoise": Server(ports[1], message, [cluster.head_pid])}


if __name__ == "__main__":
    main()
