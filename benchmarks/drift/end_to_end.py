"""The story from its beginning to its end on a running service: python -m benchmarks.drift.end_to_end

A vending machine works; its light gets warmer and the table reflects; the service says so; a hundred pictures are
labelled; the model is adapted and swapped in while requests go on; it works again.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.drift.image_pool import OTHER, SEED, model
from equipoise.hardware import describe_hardware
from jobs.cluster.processes import find_free_ports, wait_until
from jobs.demo.chapters import EVENING_SCENE
from jobs.demo.traffic import SimulatedClients
from tests.support.ray_cluster import Cluster, running

LABELS, JUDGED, TICK = 100, 1000, 0.5


def main() -> None:
    """Tell it, with its numbers."""
    print(", ".join(f"{name} {value}" for name, value in describe_hardware(torch.device("cpu")).items()))
    with TemporaryDirectory() as name, running() as cluster, served(cluster, Path(name)) as vending:
        told(vending, cluster, Path(name))


@contextmanager
def served(cluster: Cluster, place: Path) -> Iterator[SimulatedClients]:
    """The bundle behind a link, on one replica, and who asks it."""
    (place / "vending").symlink_to(model())
    (port,) = find_free_ports(1)
    arguments = {
        "bundle": str(place / "vending"),
        "port": port,
        "reload_seconds": 1,
        "report_seconds": TICK,
        "state_dir": str(place / "state_dir"),
    }
    arguments |= {"capture_dir": str(place / "kept"), "max_captures": 400}
    application = {"name": "vending", "route_prefix": "/", "import_path": "services.app:build", "args": arguments}
    cluster.deploy({"proxy_location": "Disabled", "applications": [application]})
    vending = SimulatedClients(port, SEED, OTHER)
    wait_until(vending.is_ready, 120)
    yield vending


def told(vending: SimulatedClients, cluster: Cluster, place: Path) -> None:
    """The chapters."""
    clean = vending.count_correct(JUDGED) / JUDGED
    print(f"clean: {clean:.1%} of {JUDGED} right; {verdict(vending)['why']}", flush=True)
    adapted(vending, cluster, place, "without drift")
    drifted = vending.count_correct(JUDGED, EVENING_SCENE) / JUDGED
    found = wait_until(lambda: (one := verdict(vending))["state"] == "drift" and one, 30)
    print(
        f"drifted: {drifted:.1%} right; {found['why']}; since {found['since']['images']} of {JUDGED} requests",
        flush=True,
    )
    vending.count_correct(600, EVENING_SCENE)  # some of these are kept
    wait_until(lambda: len(vending.list_drift_captures(LABELS)) == LABELS, 60)
    print(f"labelled: {vending.label_captures(LABELS)}", flush=True)
    before, answered = vending.served_version(), vending.answers_by_version.total()
    with vending.send_in_background(EVENING_SCENE):
        adapted(vending, cluster, place, "with drift")
        wait_until(lambda: vending.served_version() != before, 60)
        swapped = vending.answers_by_version.total()
        wait_until(lambda: vending.answers_by_version.total() > swapped + 100, 60)
    meanwhile, missed = vending.answers_by_version.total() - answered, vending.failure_reasons
    print(f"swapped while {meanwhile} requests were answered; not answered: {len(missed)} {missed[:2]}", flush=True)
    now, again = vending.count_correct(JUDGED) / JUDGED, vending.count_correct(JUDGED, EVENING_SCENE) / JUDGED
    print(f"after: clean {now:.1%} ({now - clean:+.1%}), drifted {again:.1%}", flush=True)
    print(f"regained: {(again - drifted) / (clean - drifted):.1%} of what was lost; {verdict(vending)['why']}")


def verdict(vending: SimulatedClients) -> dict[str, Any]:
    """Once all that the bundle of now has answered are counted."""

    def counted() -> dict[str, Any] | None:
        found: dict[str, Any] = vending.request_service("GET", "/drift")
        return found if found["images"] >= vending.answers_by_version[found["version"]] else None

    found: dict[str, Any] = wait_until(counted, 60)
    return found


def adapted(vending: SimulatedClients, cluster: Cluster, place: Path, when: str) -> None:
    """The command of the README."""
    link, begun = place / "vending", time.monotonic()
    command = [sys.executable, "-m", "jobs.adapt", "--bundle", str(link.resolve()), "--link", str(link)]
    command += ["--service", f"http://127.0.0.1:{vending.port}", "--capture-dir", str(place / "kept")]
    ran = cluster.run(*command, "--out", str(place / "adapted"), timeout=1200)
    print(f"adapt {when}: exit {ran.returncode} in {time.monotonic() - begun:.0f} s\n{ran.stdout}{ran.stderr[-600:]}")


if __name__ == "__main__":
    main()
