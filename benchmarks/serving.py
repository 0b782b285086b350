"""The service beside servers that others built, all of them up at once and asked in turn.

python -m benchmarks.serving [--rounds 5] [--only plain ours bento]

CPU is that of a server's whole process tree, Ray's own processes included: wall time says more about who else is busy
on a shared machine. Peers of an environment of their own are left out where that is missing (make .venv/servers/ready).
"""

import argparse
import base64
import io
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from benchmarks.http_clients import Burst, burst, request
from benchmarks.servers.model import MODEL, RUN
from equipoise.hardware import describe_hardware
from jobs.cluster.processes import find_free_ports, terminate_process_groups, wait_until
from tests.support.bundles import published, short_run
from tests.support.ray_cluster import ROOT, Cluster, running

OTHERS = ROOT / ".venv" / "servers" / "bin"
AT_A_TIME, SECONDS = (1, 8, 64), 2.5
KEY = "a-key-of-thirty-two-characters-.."
MODELS = {"lenet": (1, 28), "mobilenet": (3, 224)}


class Server(NamedTuple):
    """Where a server listens, what it is asked, and its processes."""

    port: int
    asked: bytes
    roots: list[int]
    group: int | None = None
    """of processes that may be held while others are asked: one of the peers is never idle"""


def main() -> None:
    """Print a table for each model."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--rounds", type=int, default=5)
    asked.add_argument("--only", nargs="*", help="begin of the names of those to ask")
    given = asked.parse_args()
    print(", ".join(f"{name} {value}" for name, value in describe_hardware(torch.device("cpu")).items()))
    with TemporaryDirectory() as name, ExitStack() as stack:
        place = Path(name)
        runs = {model: short_run(place / model, f"benchmarks.served_models:{model}", examples=320) for model in MODELS}
        bundles = {model: published(run, place / f"{model}-bundle", drift=True) for model, run in runs.items()}
        wanted = [*started(stack, place, runs, bundles)]
        some = {
            name: server for name, server in wanted if not given.only or any(name.startswith(one) for one in given.only)
        }
        for title, part, at_a_time in (
            ("LeNet, PNG of 28x28", "lenet", AT_A_TIME),
            ("LeNet, one tensor as bytes", "tensor", (1, 8)),
            ("MobileNetV3-small, PNG of 224x224", "mobilenet", (1, 8)),
        ):
            servers = {name: one for name, one in some.items() if name.endswith(f", {part}")}
            for count in at_a_time if servers else ():
                table(f"{title}, {count} at a time", compared(servers, count, given.rounds))


def started(
    stack: ExitStack, place: Path, runs: dict[str, Path], bundles: dict[str, Path]
) -> Iterator[tuple[str, Server]]:
    """Servers by name, each up and asked once. A name ends with what is asked of the server."""
    for model, (channels, size) in MODELS.items():
        data = picture(channels, size)
        network = {"lenet": "lenet", "mobilenet": "mobilenet_v3_small"}[model]
        variables = {RUN: str(runs[model]), MODEL: f"{network}:{channels}:{size}"}
        raw = request("/predict", data, "image/png")
        first = stack.enter_context(plain(variables, raw))
        yield f"plain FastAPI, {model}", first
        if model == "lenet":
            pixels = request("/tensor", bytes(28 * 28), "application/octet-stream")
            yield "plain FastAPI, tensor", first._replace(asked=pixels)
            for name, server in stack.enter_context(peers(place, variables, data)):
                yield f"{name}, {model}", server
    mine = stack.enter_context(ours(place, bundles))
    for model, (channels, size) in MODELS.items():
        data = picture(channels, size)
        for name, path in (("eager", f"{model}-eager"), ("chosen engine", model)):
            asked = request(f"/models/{path}/predict", data, "image/png", x_api_key=KEY)
            yield f"ours, {name}, {model}", Server(mine[0], asked, mine[1])
    yield "ours, eager, tensor", Server(mine[0], binary("lenet-eager"), mine[1])


@contextmanager
def plain(variables: dict[str, str], asked: bytes) -> Iterator[Server]:
    """FastAPI by uvicorn, one process."""
    (port,) = find_free_ports(1)
    quiet = ("--no-access-log", "--log-level", "warning")
    command = [sys.executable, "-m", "uvicorn", "benchmarks.servers.fastapi_app:app", "--port", str(port), *quiet]
    with process(command, variables, port, asked) as server:
        yield server


@contextmanager
def peers(place: Path, variables: dict[str, str], data: bytes) -> Iterator[list[tuple[str, Server]]]:
    """Those of an environment of their own, and Ray Serve as its documentation begins."""
    with ExitStack() as stack:
        commands = by_documentation(place, data) if (OTHERS / "mlserver").exists() else {}
        found = []
        for name, (command, port, asked) in commands.items():
            found.append((name, stack.enter_context(process(command, variables, port, asked))))
            if name == "BentoML":
                form = request("/batched", formed("images", data), "multipart/form-data; boundary=x")
                found.append(("BentoML batching", found[-1][1]._replace(asked=form)))
        found.append(("Ray Serve by its proxy", stack.enter_context(by_proxy(variables, data))))
        yield found


def by_documentation(place: Path, data: bytes) -> dict[str, tuple[list[str], int, bytes]]:
    """Peers' commands, ports and requests."""
    ports, coded = find_free_ports(6), base64.b64encode(data).decode()
    lit = request("/predict", json.dumps({"image": coded}).encode(), "application/json")
    form = request("/predict", formed("image", data), "multipart/form-data; boundary=x")
    tensor = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [coded]}
    whole = request("/v2/models/lenet/infer", json.dumps({"inputs": [tensor]}).encode(), "application/json")
    bento = [str(OTHERS / "bentoml"), "serve", "benchmarks.servers.bentoml_app:Predictor", "--quiet"]
    bento += ["--host", "127.0.0.1", "--port", str(ports[2]), "--working-dir", str(ROOT)]
    python = [str(OTHERS / "python"), "-m", "benchmarks.servers.litserve_app"]
    return {
        "LitServe": ([*python, str(ports[0]), "1"], ports[0], lit),
        "LitServe batching": ([*python, str(ports[1]), "32"], ports[1], lit),
        "BentoML": (bento, ports[2], form),
        "MLServer": ([str(OTHERS / "mlserver"), "start", str(mlserver(place / "ml", ports[3:]))], ports[3], whole),
    }


@contextmanager
def by_proxy(variables: dict[str, str], data: bytes) -> Iterator[Server]:
    """Ray Serve's own way for a request."""
    (port,) = find_free_ports(1)
    asked = request("/", data, "image/png")
    with running(RAY_worker_niceness="0", PYTHONPATH=str(ROOT), **variables) as cluster:
        application = {"name": "default", "route_prefix": "/", "import_path": "benchmarks.servers.ray_serve_app:app"}
        cluster.deploy({"http_options": {"port": port}, "applications": [application]})
        wait_until(lambda: answers(port, asked), 120)
        yield Server(port, asked, [cluster.head_pid])


@contextmanager
def ours(place: Path, bundles: dict[str, Path], drift: bool = True) -> Iterator[tuple[int, list[int]]]:
    """The service with all it has switched on: a key is asked for, everything is counted and watched for drift."""
    (port,) = find_free_ports(1)
    keys = place / "keys"
    keys.write_text(KEY)
    keys.chmod(0o600)
    wanted = {name: {"bundle": str(path)} for name, path in bundles.items()}
    wanted |= {f"{name}-eager": {"bundle": str(path), "engine": "eager"} for name, path in bundles.items()}
    application = {"name": "ours", "route_prefix": "/", "import_path": "services.app:build"}
    application |= {
        "args": {"port": port, "api_keys_file": str(keys), "drift": drift, "state_dir": str(place / f"state-{port}")}
    }
    application |= {"deployments": [{"name": "Predictor", "user_config": wanted}]}
    with running(RAY_worker_niceness="0") as cluster:
        deployed(cluster, application)
        wait_until(
            lambda: answers(port, request("/models/lenet/predict", picture(1, 28), "image/png", x_api_key=KEY)),
            120,
        )
        yield port, [cluster.head_pid]


def deployed(cluster: Cluster, application: dict[str, object]) -> None:
    """An application whose replicas listen by themselves."""
    cluster.deploy({"proxy_location": "Disabled", "applications": [application]})


@contextmanager
def process(command: list[str], variables: dict[str, str], port: int, asked: bytes) -> Iterator[Server]:
    """A server's process, up and answering, and held."""
    environment = os.environ | variables | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    environment["PATH"] = f"{Path(command[0]).parent}:{environment['PATH']}"
    with TemporaryDirectory() as place, Path(place, "log").open("w+") as log:
        started = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        try:
            wait_until(lambda: started.poll() is not None or answers(port, asked), 120)
            if started.poll() is not None:
                sys.exit(f"{' '.join(command)} ended:\n{Path(place, 'log').read_text()}")
            os.killpg(started.pid, signal.SIGSTOP)
            yield Server(port, asked, [started.pid], started.pid)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGCONT)
            terminate_process_groups([started])


def answers(port: int, asked: bytes) -> bool:
    """Whether a request gets its 200."""
    head, _, body = asked.partition(b"\r\n\r\n")
    path = head.split(b" ")[1].decode()
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", path, body, headers)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def compared(servers: dict[str, Server], at_a_time: int, rounds: int) -> dict[str, list[Burst]]:
    """What each server did in each round."""
    seen: dict[str, list[Burst]] = {name: [] for name in servers}
    for _ in range(rounds):
        for name, server in servers.items():
            go_on(server, signal.SIGCONT)
            found = burst(server.port, server.asked, at_a_time, SECONDS, roots=server.roots)
            seen[name].append(found)
            go_on(server, signal.SIGSTOP)
            if set(found.statuses) != {200}:
                sys.exit(f"{name} answered {found.statuses}")
    return seen


def go_on(server: Server, what: signal.Signals) -> None:
    """Hold a server's processes, or let them go on."""
    if server.group is not None:
        os.killpg(server.group, what)


def table(title: str, seen: dict[str, list[Burst]]) -> None:
    """Medians, and the median over rounds of the ratio to the first server."""
    anchor = next(iter(seen.values()))
    print(f"\n{title}\n\n| server | CPU ms a request | to the first | requests/s | to the first | p50 ms | p99 ms |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    middle = statistics.median
    for name, rounds in seen.items():
        dearer = middle(one.cost / first.cost for one, first in zip(rounds, anchor, strict=True))
        faster = middle(one.rate / first.rate for one, first in zip(rounds, anchor, strict=True))
        cost, rate = middle(one.cost for one in rounds), middle(one.rate for one in rounds)
        p50, p99 = (1000 * middle(one.quantile(share) for one in rounds) for share in (0.5, 0.99))
        print(
            f"| {name} | {cost:.2f} | {dearer:.2f} | {rate:,.0f} | {faster:.2f} | {p50:.1f} | {p99:.1f} |", flush=True
        )


def picture(channels: int, size: int) -> bytes:
    """A photograph of no thing, as PNG."""
    rows = np.random.default_rng(0).integers(0, 256, (size // 7, size // 7, channels)).astype(np.uint8)
    image = Image.fromarray(rows[:, :, 0] if channels == 1 else rows).resize((size, size), Image.Resampling.BICUBIC)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def formed(field: str, data: bytes) -> bytes:
    """A file in a form."""
    head = f'--x\r\nContent-Disposition: form-data; name="{field}"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'
    return head.encode() + data + b"\r\n--x--\r\n"


def binary(model: str) -> bytes:
    """A picture as the protocol's bytes, its scores back as bytes."""
    one = {"name": "pictures", "datatype": "UINT8", "shape": [1, 1, 28, 28], "parameters": {"binary_data_size": 784}}
    outputs = [{"name": "scores", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": [one], "outputs": outputs}).encode()
    headers = {"Inference_Header_Content_Length": str(len(head)), "x_api_key": KEY}
    return request(f"/v2/models/{model}/infer", head + bytes(784), "application/octet-stream", **headers)


def mlserver(place: Path, ports: list[int]) -> Path:
    """A folder that MLServer starts from."""
    place.mkdir()
    http, grpc, metrics = ports
    settings = {"host": "127.0.0.1", "http_port": http, "grpc_port": grpc, "metrics_port": metrics}
    settings |= {"parallel_workers": 0, "debug": False}
    (place / "settings.json").write_text(json.dumps(settings))
    model = {"name": "lenet", "implementation": "benchmarks.servers.mlserver_runtime.Predictor"}
    (place / "model-settings.json").write_text(json.dumps(model))
    return place


if __name__ == "__main__":
    main()
