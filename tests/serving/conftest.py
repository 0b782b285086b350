"""The prediction service as a user starts it: `serve run` with a real bundle on a real port."""

import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import torch

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from equipoise.workloads import load_workload
from jobs.cluster.processes import find_free_ports, wait_until
from tests.support.bundles import publish_run, train_short_run, train_table, write_run_folder
from tests.support.ray_cluster import PATIENCE_SECONDS, list_descendants
from tests.support.shared_folders import make_once
from tests.support.tables import friedman_table, mixed_table
from tests.support.webhook import start_webhook

FRIEDMAN_COLUMNS = ["x1", "x2", "x3", "x4", "x5", "y"]
SEEDS = (0, 1)
SERVING_TESTS = Path(__file__).parent
SERVE_COMMAND = str(Path(sys.executable).with_name("serve"))


Reply = tuple[int, dict[str, str], bytes]


@dataclass(frozen=True)
class Service:
    """Running prediction service, as its clients see it."""

    port: int
    bundle: Path
    replica_pid: int
    other_bundle: Path
    """another bundle of the same model"""
    log: Path
    """what `serve run` prints"""

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        """Return status, headers and body of the reply; header names are given with underscores for hyphens."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            reply = connection.getresponse()
            return reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
        finally:
            connection.close()

    def request_json(self, method: str, path: str, payload: Any = None, **headers: str) -> Any:
        """Send the payload, as JSON unless it is bytes; return the parsed reply, whose status must be 200."""
        body = payload if isinstance(payload, bytes) else None if payload is None else json.dumps(payload).encode()
        status, _, reply = self.request(method, path, body, **headers)
        assert status == 200, reply
        return json.loads(reply)


@pytest.fixture(scope="session")
def bundles(tmp_path_factory):
    """Two bundles of the digits model, trained from different seeds."""

    def publish(folder):
        for seed in SEEDS:
            publish_run(train_short_run(folder / f"run-{seed}", seed=seed), folder / f"digits-{seed}")

    folder = make_once(tmp_path_factory, "two-digits", publish)
    return [folder / f"digits-{seed}" for seed in SEEDS]


@pytest.fixture(scope="session")
def digit_images():
    """Images that are neither in the training data nor in the reference."""
    workload = load_workload(TrainConfig(workload="digits"))
    return torch.cat([workload.test.inputs, workload.validation.inputs])


class ServiceSlot:
    """Slot for one running service, because Ray has two CPU slots here.

    The service keeps running for the following tests that use the same one.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self.exit_stack = ExitStack()
        self.service: Any = None

    def use(self, name: str, start: Callable[[], AbstractContextManager[Any]]) -> Any:
        """Return the service of this name; unless it is running, stop the current one and call `start`."""
        if self.name != name:
            self.clear()
            self.service, self.name = self.exit_stack.enter_context(start()), name
        return self.service

    def clear(self) -> None:
        """Stop the running service, if any."""
        self.exit_stack.close()
        self.name = None


SERVICE_SLOT = ServiceSlot()


def pytest_collection_modifyitems(items):
    """Run modules that use the `service` fixture one after the other: the service takes 15 seconds to start."""
    indices = [index for index, item in enumerate(items) if item.path.parent == SERVING_TESTS]
    service_modules = {items[index].path for index in indices if "service" in items[index].fixturenames}
    ordered = sorted((items[index] for index in indices), key=lambda item: item.path not in service_modules)
    for index, item in zip(indices, ordered, strict=True):
        items[index] = item


def pytest_runtest_teardown(nextitem):
    """Stop the service after the last test of this folder, because tests of other folders need Ray's slots."""
    if nextitem is None or nextitem.path.parent != SERVING_TESTS:
        SERVICE_SLOT.clear()


@pytest.fixture(scope="session")
def service_slot(cluster):
    return SERVICE_SLOT


@pytest.fixture(scope="module")
def service(service_slot, cluster, bundles, tmp_path_factory):
    return service_slot.use(
        "service", lambda: start_service(cluster, bundles, tmp_path_factory.mktemp("service") / "log")
    )


@pytest.fixture(scope="session")
def kind_bundles(bundles, tmp_path_factory):
    """Folders of bundles of all kinds of data by the names of their models; each is trained for seconds."""
    folder = make_once(tmp_path_factory, "kinds", publish_kinds)
    return {"digits": bundles[0]} | {name: folder / f"{name}-bundle" for name in ("friedman", "grades", "plays")}


def publish_kinds(folder):
    """Train a model of each kind of data that is no image, and publish it with a drift profile."""
    language = Training(TrainConfig(workload="text", model="gpt:1x16", batch_size=16, max_examples=960))
    for _ in language.laps():
        pass
    runs = {
        "friedman": train_table(folder / "friedman", friedman_table(3000)[FRIEDMAN_COLUMNS], "y", examples=1600),
        "grades": train_table(folder / "grades", mixed_table(400), "grade", examples=480),
        "plays": write_run_folder(language, folder / "plays"),
    }
    for name, run in runs.items():
        publish_run(run, folder / f"{name}-bundle", drift=True)


@pytest.fixture(scope="session")
def webhook():
    with start_webhook() as server:
        yield server


@pytest.fixture
def mixed_service(service_slot, cluster, kind_bundles, webhook, tmp_path_factory):
    """Service of models of all kinds."""
    folder = tmp_path_factory.mktemp("mixed")
    return service_slot.use("mixed", lambda: start_mixed_service(cluster, kind_bundles, webhook.server_port, folder))


@contextmanager
def start_mixed_service(cluster, kind_bundles, webhook_port, folder):
    """Deploy the service of models of all kinds, and shut it down at the end."""
    (port,) = find_free_ports(1)
    specs = {name: {"bundle": str(path)} for name, path in kind_bundles.items()}
    arguments = {"port": port, "models": specs, "state_dir": str(folder), "capture_dir": str(folder / "captures")}
    arguments |= {"report_seconds": 0.2, "webhook": f"http://127.0.0.1:{webhook_port}"}
    application = {"name": "kinds", "route_prefix": "/", "import_path": "services.app:build", "args": arguments}
    cluster.deploy({"proxy_location": "Disabled", "applications": [application]})
    service = Service(port, kind_bundles["digits"], 0, kind_bundles["digits"], folder / "log")

    def is_ready():
        try:
            return service.request("GET", "/ready")[0] == 200
        except OSError:
            return False

    wait_until(is_ready, PATIENCE_SECONDS)
    yield service
    cluster.shut_down_serve()


@contextmanager
def start_service(cluster, bundles, log, *extra_arguments):
    """Start the service of the first bundle with the command of the guides, and stop it at the end."""
    (port,) = find_free_ports(1)
    arguments = (f"bundle={bundles[0]}", f"port={port}", f"state_dir={log.parent / 'drift'}", *extra_arguments)
    process = cluster.start(SERVE_COMMAND, "run", "services.app:build", *arguments, log=log)

    def is_ready() -> bool:
        assert process.poll() is None, log.read_text()
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/ready")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    try:
        wait_until(is_ready, PATIENCE_SECONDS)
    except TimeoutError:
        raise AssertionError(log.read_text()) from None
    (replica_pid,) = [pid for pid, command in list_descendants(cluster.head_pid).items() if "ServeReplica" in command]
    yield Service(port, bundles[0], replica_pid, bundles[-1], log)
    cluster.shut_down_serve()
    process.terminate()
    process.wait(timeout=PATIENCE_SECONDS)
