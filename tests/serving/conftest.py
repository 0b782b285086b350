"""The service as a user starts it: serve run, a real bundle, a real port."""

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
from equipoise.workloads import load_workload
from jobs.cluster.processes import find_free_ports, wait_until
from tests.support.bundles import publish_run, train_short_run
from tests.support.ray_cluster import list_descendants

HERE = Path(__file__).parent
SERVE = str(Path(sys.executable).with_name("serve"))


Reply = tuple[int, dict[str, str], bytes]


@dataclass(frozen=True)
class Service:
    """A running service."""

    port: int
    bundle: Path
    replica: int
    """its process id"""
    other: Path
    """another bundle of the same model"""

    def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the reply."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            reply = connection.getresponse()
            return reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
        finally:
            connection.close()

    def json(self, method: str, path: str, facts: Any = None, **headers: str) -> Any:
        """A reply of 200 as JSON."""
        body = facts if isinstance(facts, bytes) else None if facts is None else json.dumps(facts).encode()
        status, _, found = self.ask(method, path, body, **headers)
        assert status == 200, found
        return json.loads(found)


@pytest.fixture(scope="session")
def bundles(tmp_path_factory):
    """Two bundles of digits that differ in what they learned from."""
    place = tmp_path_factory.mktemp("bundles")
    return [publish_run(train_short_run(place / f"run-{seed}", seed=seed), place / f"digits-{seed}") for seed in (0, 1)]


@pytest.fixture(scope="session")
def digits():
    """Pictures that neither training nor the reference has."""
    made = load_workload(TrainConfig(workload="digits"))
    return torch.cat([made.test.pictures, made.validation.pictures])


class Stage:
    """Room for one service at a time: Ray has two slots here. It stays up for the next tests that ask for the same."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.held = ExitStack()
        self.value: Any = None

    def show(self, name: str, start: Callable[[], AbstractContextManager[Any]]) -> Any:
        """What `start` gives, started only if it is not there already."""
        if self.name != name:
            self.clear()
            self.value, self.name = self.held.enter_context(start()), name
        return self.value

    def clear(self) -> None:
        """End what is there."""
        self.held.close()
        self.name = None


STAGE = Stage()


def pytest_collection_modifyitems(items):
    """Modules that ask for the plain service come one after the other: it takes a quarter of a minute to start."""
    here = [place for place, item in enumerate(items) if item.path.parent == HERE]
    plain = {items[place].path for place in here if "service" in items[place].fixturenames}
    ordered = sorted((items[place] for place in here), key=lambda item: item.path not in plain)
    for place, item in zip(here, ordered, strict=True):
        items[place] = item


def pytest_runtest_teardown(nextitem):
    """Other folders' tests need the slots."""
    if nextitem is None or nextitem.path.parent != HERE:
        STAGE.clear()


@pytest.fixture(scope="session")
def stage(cluster):
    return STAGE


@pytest.fixture(scope="module")
def service(stage, cluster, bundles, tmp_path_factory):
    return stage.show("service", lambda: started(cluster, bundles, tmp_path_factory.mktemp("service") / "log"))


@contextmanager
def started(cluster, bundles, log, *arguments):
    """The service, by the command of the README."""
    (port,) = find_free_ports(1)
    given = (f"bundle={bundles[0]}", f"port={port}", f"state_dir={log.parent / 'drift'}", *arguments)
    process = cluster.start(SERVE, "run", "services.app:build", *given, log=log)

    def answers() -> bool:
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
        wait_until(answers, 120)
    except TimeoutError:
        raise AssertionError(log.read_text()) from None
    (replica,) = [pid for pid, command in list_descendants(cluster.head_pid).items() if "ServeReplica" in command]
    yield Service(port, bundles[0], replica, bundles[-1])
    cluster.shut_down_serve()
    process.terminate()
    process.wait(timeout=60)
