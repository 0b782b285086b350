"""The service of Equipoise beside other serving frameworks, all up at once and measured in turn.

python -m benchmarks.serving [--rounds 5] [--only plain ours bento]

CPU time is that of the whole process tree of a server, including Ray's own processes: wall time depends more on what
else runs on a shared machine. Peers that need their own environment are skipped where it is missing
(make .venv/servers/ready).
"""

import argparse
import base64
import io
import json
import signal
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image

from benchmarks.http_clients import BurstResult, build_request, run_burst
from benchmarks.server_processes import Server, deploy_application, is_answering, run_server_process, signal_server
from benchmarks.servers.model import MODEL_VARIABLE, RUN_VARIABLE
from equipoise.hardware import describe_hardware
from jobs.cluster.processes import find_free_ports, wait_until
from tests.support.bundles import publish_run, train_short_run
from tests.support.ray_cluster import ROOT, start_cluster

PEERS_BIN = ROOT / ".venv" / "servers" / "bin"
CLIENT_COUNTS, BURST_SECONDS = (1, 8, 64), 2.5
API_KEY = "a-key-of-thirty-two-characters-.."
MODEL_INPUTS = {"lenet": (1, 28), "mobilenet": (3, 224)}


def main() -> None:
    """Print a table for each kind of request and number of clients."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="beginnings of the names of the servers to measure")
    arguments = parser.parse_args()
    print(describe_hardware(torch.device("cpu")))
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        runs = {
            model: train_short_run(folder / model, f"benchmarks.served_models:{model}", examples=320)
            for model in MODEL_INPUTS
        }
        bundles = {model: publish_run(run, folder / f"{model}-bundle", drift=True) for model, run in runs.items()}
        all_servers = [*start_servers(stack, folder, runs, bundles)]
        selected = {
            name: server
            for name, server in all_servers
            if not arguments.only or any(name.startswith(start) for start in arguments.only)
        }
        for title, suffix, client_counts in (
            ("LeNet, PNG of 28x28", "lenet", CLIENT_COUNTS),
            ("LeNet, one tensor as bytes", "tensor", (1, 8)),
            ("MobileNetV3-small, PNG of 224x224", "mobilenet", (1, 8)),
        ):
            servers = {name: server for name, server in selected.items() if name.endswith(f", {suffix}")}
            for count in client_counts if servers else ():
                print_server_table(f"{title}, {count} at a time", measure_servers(servers, count, arguments.rounds))


def start_servers(
    stack: ExitStack, folder: Path, runs: dict[str, Path], bundles: dict[str, Path]
) -> Iterator[tuple[str, Server]]:
    """Start all servers and yield them by name once they answer; a name ends with the kind of request."""
    for model, (channels, size) in MODEL_INPUTS.items():
        data = render_png(channels, size)
        network = {"lenet": "lenet", "mobilenet": "mobilenet_v3_small"}[model]
        variables = {RUN_VARIABLE: str(runs[model]), MODEL_VARIABLE: f"{network}:{channels}:{size}"}
        png_request = build_request("/predict", data, "image/png")
        fastapi = stack.enter_context(serve_plain_fastapi(variables, png_request))
        yield f"plain FastAPI, {model}", fastapi
        if model == "lenet":
            pixels_request = build_request("/tensor", bytes(28 * 28), "application/octet-stream")
            yield "plain FastAPI, tensor", fastapi._replace(message=pixels_request)
            for name, server in stack.enter_context(serve_peers(folder, variables, data)):
                yield f"{name}, {model}", server
    equipoise_port, equipoise_roots = stack.enter_context(serve_equipoise(folder, bundles))
    for model, (channels, size) in MODEL_INPUTS.items():
        data = render_png(channels, size)
        for name, path in (("eager", f"{model}-eager"), ("chosen engine", model)):
            message = build_request(f"/models/{path}/predict", data, "image/png", x_api_key=API_KEY)
            yield f"ours, {name}, {model}", Server(equipoise_port, message, equipoise_roots)
    yield "ours, eager, tensor", Server(equipoise_port, build_binary_request("lenet-eager"), equipoise_roots)


@contextmanager
def serve_plain_fastapi(variables: dict[str, str], message: bytes) -> Iterator[Server]:
    """Serve the model with plain FastAPI on uvicorn, in one process."""
    (port,) = find_free_ports(1)
    log_flags = ("--no-access-log", "--log-level", "warning")
    command = [sys.executable, "-m", "uvicorn", "benchmarks.servers.fastapi_app:app", "--port", str(port), *log_flags]
    with run_server_process(command, variables, port, message) as server:
        yield server


@contextmanager
def serve_peers(folder: Path, variables: dict[str, str], data: bytes) -> Iterator[list[tuple[str, Server]]]:
    """Serve the model with the peers of the other environment, and with Ray Serve as in its documentation."""
    with ExitStack() as stack:
        commands = build_peer_commands(folder, data) if (PEERS_BIN / "mlserver").exists() else {}
        servers = []
        for name, (command, port, message) in commands.items():
            servers.append((name, stack.enter_context(run_server_process(command, variables, port, message))))
            if name == "BentoML":
                body = build_multipart_form("images", data)
                form = build_request("/predict_batch", body, "multipart/form-data; boundary=x")
                servers.append(("BentoML batching", servers[-1][1]._replace(message=form)))
        servers.append(("Ray Serve by its proxy", stack.enter_context(serve_through_ray_proxy(variables, data))))
        yield servers


def build_peer_commands(folder: Path, data: bytes) -> dict[str, tuple[list[str], int, bytes]]:
    """Build the command, port and request of each peer, as in its documentation."""
    ports, encoded = find_free_ports(6), base64.b64encode(data).decode()
    base64_request = build_request("/predict", json.dumps({"image": encoded}).encode(), "application/json")
    form = build_request("/predict", build_multipart_form("image", data), "multipart/form-data; boundary=x")
    tensor = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [encoded]}
    infer_request = build_request(
        "/v2/models/lenet/infer", json.dumps({"inputs": [tensor]}).encode(), "application/json"
    )
    bento_command = [str(PEERS_BIN / "bentoml"), "serve", "benchmarks.servers.bentoml_app:Predictor", "--quiet"]
    bento_command += ["--host", "127.0.0.1", "--port", str(ports[2]), "--working-dir", str(ROOT)]
    python = [str(PEERS_BIN / "python"), "-m", "benchmarks.servers.litserve_app"]
    return {
        "LitServe": ([*python, str(ports[0]), "1"], ports[0], base64_request),
        "LitServe batching": ([*python, str(ports[1]), "32"], ports[1], base64_request),
        "BentoML": (bento_command, ports[2], form),
        "MLServer": (
            [str(PEERS_BIN / "mlserver"), "start", str(write_mlserver_folder(folder / "ml", ports[3:]))],
            ports[3],
            infer_request,
        ),
    }


@contextmanager
def serve_through_ray_proxy(variables: dict[str, str], data: bytes) -> Iterator[Server]:
    """Serve the model with Ray Serve behind its own HTTP proxy."""
    (port,) = find_free_ports(1)
    message = build_request("/", data, "image/png")
    with start_cluster(RAY_worker_niceness="0", PYTHONPATH=str(ROOT), **variables) as cluster:
        application = {"name": "default", "route_prefix": "/", "import_path": "benchmarks.servers.ray_serve_app:app"}
        cluster.deploy({"http_options": {"port": port}, "applications": [application]})
        wait_until(lambda: is_answering(port, message), 120)
        yield Server(port, message, [cluster.head_pid])


@contextmanager
def serve_equipoise(folder: Path, bundles: dict[str, Path], drift: bool = True) -> Iterator[tuple[int, list[int]]]:
    """Serve the bundles with Equipoise and everything switched on: API key, metrics and drift monitoring."""
    (port,) = find_free_ports(1)
    keys = folder / "keys"
    keys.write_text(API_KEY)
    keys.chmod(0o600)
    models = {name: {"bundle": str(path)} for name, path in bundles.items()}
    models |= {f"{name}-eager": {"bundle": str(path), "engine": "eager"} for name, path in bundles.items()}
    application = {"name": "ours", "route_prefix": "/", "import_path": "services.app:build"}
    application |= {
        "args": {"port": port, "api_keys_file": str(keys), "drift": drift, "state_dir": str(folder / f"state-{port}")}
    }
    application |= {"deployments": [{"name": "Predictor", "user_config": models}]}
    with start_cluster(RAY_worker_niceness="0") as cluster:
        deploy_application(cluster, application)
        wait_until(
            lambda: is_answering(
                port, build_request("/models/lenet/predict", render_png(1, 28), "image/png", x_api_key=API_KEY)
            ),
            120,
        )
        yield port, [cluster.head_pid]


def measure_servers(servers: dict[str, Server], client_count: int, rounds: int) -> dict[str, list[BurstResult]]:
    """Measure each server in each round, with the others paused."""
    results: dict[str, list[BurstResult]] = {name: [] for name in servers}
    for _ in range(rounds):
        for name, server in servers.items():
            signal_server(server, signal.SIGCONT)
            result = run_burst(server.port, server.message, client_count, BURST_SECONDS, roots=server.roots)
            results[name].append(result)
            signal_server(server, signal.SIGSTOP)
            if set(result.statuses) != {200}:
                sys.exit(f"{name} answered statuses {result.statuses}")
    return results


def print_server_table(title: str, results: dict[str, list[BurstResult]]) -> None:
    """Print medians, and the median over rounds of each ratio to the first server."""
    baseline = next(iter(results.values()))
    print(f"\n{title}\n\n| server | CPU ms a request | to the first | requests/s | to the first | p50 ms | p99 ms |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    median = statistics.median
    for name, rounds in results.items():
        cost_ratio = median(
            result.cpu_ms_per_request / first.cpu_ms_per_request for result, first in zip(rounds, baseline, strict=True)
        )
        rate_ratio = median(
            result.replies_per_second / first.replies_per_second for result, first in zip(rounds, baseline, strict=True)
        )
        cost = median(result.cpu_ms_per_request for result in rounds)
        rate = median(result.replies_per_second for result in rounds)
        p50, p99 = (1000 * median(result.latency_quantile(share) for result in rounds) for share in (0.5, 0.99))
        print(
            f"| {name} | {cost:.2f} | {cost_ratio:.2f} | {rate:,.0f} | {rate_ratio:.2f} | {p50:.1f} | {p99:.1f} |",
            flush=True,
        )


def render_png(channels: int, size: int) -> bytes:
    """Render a smooth random image as a PNG file."""
    rows = np.random.default_rng(0).integers(0, 256, (size // 7, size // 7, channels)).astype(np.uint8)
    image = Image.fromarray(rows[:, :, 0] if channels == 1 else rows).resize((size, size), Image.Resampling.BICUBIC)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def build_multipart_form(field: str, data: bytes) -> bytes:
    """Build the body of a multipart form with one file."""
    head = f'--x\r\nContent-Disposition: form-data; name="{field}"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'
    return head.encode() + data + b"\r\n--x--\r\n"


def build_binary_request(model: str) -> bytes:
    """Build an Open Inference Protocol request with an image and its scores as raw bytes."""
    tensor = {"name": "pictures", "datatype": "UINT8", "shape": [1, 1, 28, 28], "parameters": {"binary_data_size": 784}}
    outputs = [{"name": "scores", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": [tensor], "outputs": outputs}).encode()
    headers = {"Inference_Header_Content_Length": str(len(head)), "x_api_key": API_KEY}
    return build_request(f"/v2/models/{model}/infer", head + bytes(784), "application/octet-stream", **headers)


def write_mlserver_folder(folder: Path, ports: list[int]) -> Path:
    """Write the settings folder that MLServer starts from and return it."""
    folder.mkdir()
    http, grpc, metrics = ports
    settings = {"host": "127.0.0.1", "http_port": http, "grpc_port": grpc, "metrics_port": metrics}
    settings |= {"parallel_workers": 0, "debug": False}
    (folder / "settings.json").write_text(json.dumps(settings))
    model = {"name": "lenet", "implementation": "benchmarks.servers.mlserver_runtime.Predictor"}
    (folder / "model-settings.json").write_text(json.dumps(model))
    return folder


if __name__ == "__main__":
    main()
