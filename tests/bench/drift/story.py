"""The story from its beginning to its end on a running service: python -m tests.bench.drift.story

A vending machine works; its light gets warmer and the table reflects; the service says so; a hundred pictures are
labelled; the model is adapted and swapped in while requests go on; it works again.
"""

import io
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from equipoise.machine import machine
from equipoise.workloads.products import MACHINE
from equipoise.workloads.shelf import Scene, rendered
from tests.bench.drift.pool import OTHER, SEED, SIZE, model
from tests.cluster import ROOT, Cluster, free_ports, running, until

DRIFT = Scene(kelvin=4000, veil=0.1, highlight=0.3)
LABELS, JUDGED, CLIENTS, TICK = 100, 1000, 4, 0.5
NAMES = [product.name for product in MACHINE]


@dataclass
class Machine:
    """The service, and the truth about what it was sent."""

    port: int
    truth: dict[bytes, str] = field(default_factory=dict)
    """what pictures show, by their pixels"""
    answered: Counter[str] = field(default_factory=Counter)
    """pictures, by the version that answered"""
    wrong: list[str] = field(default_factory=list)
    """requests that were not answered"""

    def ask(self, verb: str, path: str, body: bytes | None = None, kind: str = "application/json") -> Any:
        """A reply; a broken connection is tried once more, as clients do."""
        for attempt in range(2):
            connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
            try:
                connection.request(verb, path, body, {"content-type": kind})
                reply = connection.getresponse()
                data = reply.read()
                if reply.status != 200:
                    raise ValueError(f"{verb} {path}: {reply.status} {data[:200]!r}")
                return data if reply.headers["content-type"] == "image/png" else json.loads(data)
            except (OSError, HTTPException):
                if attempt:
                    raise
            finally:
                connection.close()
        return None

    def label(self, picture: Tensor) -> str | None:
        """What the model says."""
        try:
            found = self.ask("POST", "/predict", png(picture), "image/png")
        except (OSError, HTTPException, ValueError) as error:
            self.wrong.append(repr(error))
            return None
        self.answered[found["version"]] += 1
        return str(found["label"])

    def accuracy(self, first: int, scene: Scene | None, count: int = JUDGED) -> float:
        """On pictures from `first` on, which nobody has seen."""
        pictures, labels = shown(first, count, scene)
        for picture, label in zip(pictures, labels, strict=True):
            self.truth[picture.numpy().tobytes()] = NAMES[label]
        with ThreadPoolExecutor(CLIENTS) as pool:
            said = list(pool.map(self.label, pictures))
        return float(np.mean([one == NAMES[label] for one, label in zip(said, labels, strict=True)]))

    @contextmanager
    def asked_meanwhile(self, scene: Scene) -> Iterator[list[int]]:
        """Requests go on."""
        pictures, _ = shown(OTHER + 90_000, 200, scene)
        stop, done = threading.Event(), [0]

        def client() -> None:
            while not stop.is_set():
                self.label(pictures[done[0] % len(pictures)])
                done[0] += 1

        thread = threading.Thread(target=client)
        thread.start()
        try:
            yield done
        finally:
            stop.set()
            thread.join()


def shown(first: int, count: int, scene: Scene | None) -> tuple[Tensor, NDArray[np.int64]]:
    """Pictures and what they show."""
    pictures, labels = rendered(MACHINE, np.arange(first, first + count), SEED, SIZE, scene)
    return pictures, labels.numpy()


def png(picture: Tensor) -> bytes:
    """As a camera would send it."""
    file = io.BytesIO()
    Image.fromarray(picture.permute(1, 2, 0).numpy()).save(file, "PNG")
    return file.getvalue()


def main() -> None:
    """Tell it, with its numbers."""
    print(", ".join(f"{name} {value}" for name, value in machine(torch.device("cpu")).items()))
    with TemporaryDirectory() as name, running() as cluster, served(cluster, Path(name)) as vending:
        told(vending, cluster, Path(name), Path(name) / "vending")


@contextmanager
def served(cluster: Cluster, place: Path) -> Iterator[Machine]:
    """The bundle behind a link, on one replica."""
    (place / "vending").symlink_to(model())
    (port,) = free_ports(1)
    arguments = {
        "bundle": str(place / "vending"),
        "port": port,
        "watch": 1,
        "tick": TICK,
        "state": str(place / "state"),
    }
    arguments |= {"capture": str(place / "kept"), "captures": 400}
    application = {"name": "vending", "route_prefix": "/", "import_path": "services.app:build", "args": arguments}
    cluster.deploy({"proxy_location": "Disabled", "applications": [application]})
    until(lambda: answers(port), 120)
    yield Machine(port)


def answers(port: int) -> bool:
    """Whether the service is up."""
    try:
        return bool(Machine(port).ask("GET", "/ready")["ready"])
    except (OSError, HTTPException, ValueError):
        return False


def told(vending: Machine, cluster: Cluster, place: Path, link: Path) -> None:
    """The chapters."""
    clean = vending.accuracy(OTHER + 10_000, None)
    print(f"clean: {clean:.1%} of {JUDGED} right; {verdict(vending)['why']}", flush=True)
    adapted(vending, cluster, place, link, "without drift")
    drifted = vending.accuracy(OTHER + 20_000, DRIFT)
    found = until(lambda: (one := verdict(vending))["state"] == "drift" and one, 30)
    print(
        f"drifted: {drifted:.1%} right; {found['why']}; since {found['since']['images']} of {JUDGED} requests",
        flush=True,
    )
    vending.accuracy(OTHER + 30_000, DRIFT, 600)  # some of these are kept
    until(lambda: len(vending.ask("GET", f"/capture?pool=drift&most={LABELS}")["captures"]) == LABELS, 60)
    print(f"labelled: {labelled(vending)}", flush=True)
    before = vending.ask("GET", "/models")["models"][0]["current"]["version"]
    with vending.asked_meanwhile(DRIFT) as done:
        adapted(vending, cluster, place, link, "with drift")
        until(lambda: vending.ask("GET", "/models")["models"][0]["current"]["version"] != before, 60)
        swapped = done[0]
        until(lambda: done[0] > swapped + 100, 60)
    print(f"swapped while {done[0]} requests came; not answered: {len(vending.wrong)} {vending.wrong[:2]}", flush=True)
    now, again = vending.accuracy(OTHER + 40_000, None), vending.accuracy(OTHER + 50_000, DRIFT)
    print(f"after: clean {now:.1%} ({now - clean:+.1%}), drifted {again:.1%}", flush=True)
    print(f"regained: {(again - drifted) / (clean - drifted):.1%} of what was lost; {verdict(vending)['why']}")


def verdict(vending: Machine) -> dict[str, Any]:
    """Once all that the bundle of now has answered are counted."""

    def counted() -> dict[str, Any] | None:
        found: dict[str, Any] = vending.ask("GET", "/drift")
        return found if found["images"] >= vending.answered[found["version"]] else None

    found: dict[str, Any] = until(counted, 60)
    return found


def labelled(vending: Machine) -> int:
    """Labels for the most useful pictures of the drift, by someone who knows."""
    given = 0
    for one in vending.ask("GET", f"/capture?pool=drift&most={LABELS}")["captures"]:
        pixels = np.asarray(Image.open(io.BytesIO(vending.ask("GET", f"/capture/{one['id']}"))))
        label = vending.truth[pixels.transpose(2, 0, 1).copy().tobytes()]
        vending.ask("POST", f"/capture/{one['id']}/label", json.dumps({"label": label}).encode())
        given += 1
    return given


def adapted(vending: Machine, cluster: Cluster, place: Path, link: Path, when: str) -> None:
    """The command of the README."""
    command = [sys.executable, "-m", "jobs.adapt", "--bundle", str(link.resolve()), "--link", str(link)]
    command += ["--service", f"http://127.0.0.1:{vending.port}", "--capture", str(place / "kept")]
    begun = time.monotonic()
    ran = subprocess.run(
        [*command, "--out", str(place / "adapted")],
        cwd=ROOT,
        env=cluster.environment | {"no_proxy": "*"},
        capture_output=True,
        text=True,
    )
    print(f"adapt {when}: exit {ran.returncode} in {time.monotonic() - begun:.0f} s\n{ran.stdout}{ran.stderr[-600:]}")


if __name__ == "__main__":
    main()
