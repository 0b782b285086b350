"""From clean requests to a repaired model on a running service: python -m benchmarks.drift.end_to_end

A vending machine works; its light gets warmer and the table reflects; the service reports drift; a hundred images are
labelled; the model is adapted and swapped in while requests go on; the machine works again: under the new light, the
old one, and both in runs of 20 there is no alarm. A lens out of focus raises the next one.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.drift.image_pool import DRIFTED_FIRST_INDEX, SEED, publish_vending_bundle
from equipoise.hardware import describe_hardware
from equipoise.workloads.vending.renderer import Scene
from jobs.cluster.processes import find_free_ports, wait_until
from jobs.demo.chapters import EVENING_SCENE
from jobs.demo.traffic import SimulatedClients
from tests.support.ray_cluster import Cluster, start_cluster

LABEL_COUNT, ACCURACY_IMAGES, REPORT_SECONDS = 100, 1000, 0.5
BLURRED_SCENE, BLURRED_IMAGES, RUN_IMAGES = Scene(blur=0.8), 160, 20


def main() -> None:
    """Run the whole sequence and print its numbers."""
    print(describe_hardware(torch.device("cpu")))
    with TemporaryDirectory() as name, start_cluster() as cluster, serve_vending(cluster, Path(name)) as vending:
        run_drift_and_adaptation(vending, cluster, Path(name))


@contextmanager
def serve_vending(cluster: Cluster, folder: Path) -> Iterator[SimulatedClients]:
    """Serve the bundle through a symbolic link, on one replica, and yield its clients."""
    (folder / "vending").symlink_to(publish_vending_bundle())
    (port,) = find_free_ports(1)
    arguments = {
        "bundle": str(folder / "vending"),
        "port": port,
        "reload_seconds": 1,
        "report_seconds": REPORT_SECONDS,
        "state_dir": str(folder / "state"),
    }
    arguments |= {"capture_dir": str(folder / "kept"), "max_captures": 400}
    application = {"name": "vending", "route_prefix": "/", "import_path": "services.app:build", "args": arguments}
    cluster.deploy({"proxy_location": "Disabled", "applications": [application]})
    vending = SimulatedClients(port, SEED, DRIFTED_FIRST_INDEX)
    wait_until(vending.is_ready, 120)
    yield vending


def run_drift_and_adaptation(vending: SimulatedClients, cluster: Cluster, folder: Path) -> None:
    """Drift the requests, label captures, adapt and swap the model; print accuracy and verdict at each stage."""
    clean = vending.count_correct(ACCURACY_IMAGES) / ACCURACY_IMAGES
    print(f"clean: {clean:.1%} of {ACCURACY_IMAGES} right; {wait_for_verdict(vending)['why']}", flush=True)
    run_adapt(vending, cluster, folder, "without drift")
    drifted = vending.count_correct(ACCURACY_IMAGES, EVENING_SCENE) / ACCURACY_IMAGES
    alarm = wait_until(lambda: (verdict := wait_for_verdict(vending))["state"] == "drift" and verdict, 30)
    print(
        f"drifted: {drifted:.1%} right; {alarm['why']}; since {alarm['since']['images_ago']} images",
        flush=True,
    )
    vending.count_correct(600, EVENING_SCENE)  # some of these are captured
    wait_until(lambda: len(vending.list_drift_captures(LABEL_COUNT)) == LABEL_COUNT, 60)
    print(f"labelled: {vending.label_captures(LABEL_COUNT)}", flush=True)
    old_version, answers_before = vending.served_version(), vending.answers_by_version.total()
    with vending.send_in_background(EVENING_SCENE):
        run_adapt(vending, cluster, folder, "with drift")
        wait_until(lambda: vending.served_version() != old_version, 60)
        answers_at_swap = vending.answers_by_version.total()
        wait_until(lambda: vending.answers_by_version.total() > answers_at_swap + 100, 60)
    answers, failures = vending.answers_by_version.total() - answers_before, vending.failure_reasons
    print(
        f"swapped while {answers} requests were answered; {len(failures)} requests failed: {failures[:2]}", flush=True
    )
    new_drifted = count_correct_and_print_alarms(vending, "new light", EVENING_SCENE) / ACCURACY_IMAGES
    new_clean = count_correct_and_print_alarms(vending, "old light", Scene()) / ACCURACY_IMAGES
    count_correct_and_print_alarms(vending, "both mixed", Scene(), EVENING_SCENE)
    print(f"after: clean {new_clean:.1%} ({new_clean - clean:+.1%}), drifted {new_drifted:.1%}", flush=True)
    print(f"regained: {(new_drifted - drifted) / (clean - drifted):.1%} of the lost accuracy")
    count_correct_and_print_alarms(vending, "blurred", BLURRED_SCENE, image_count=BLURRED_IMAGES)


def count_correct_and_print_alarms(
    vending: SimulatedClients, name: str, *scenes: Scene, image_count: int = ACCURACY_IMAGES
) -> int:
    """Send images of scenes in turns, print the verdict and the first alarm, and return how many were right.

    The verdict is awaited after each run: alarms are counted at a report, which holds half a second of requests.
    """
    images_before, alarms_before, correct = wait_for_verdict(vending)["images"], len(list_alarms(vending)), 0
    images, names = vending.render_mixed_images(image_count, scenes, RUN_IMAGES)
    for start in range(0, image_count, RUN_IMAGES):
        correct += vending.count_correct_images(images[start : start + RUN_IMAGES], names[start : start + RUN_IMAGES])
        verdict = wait_for_verdict(vending)
    alarms = list_alarms(vending)[alarms_before:]
    alarm = f"alarm after {alarms[0]['images'] - images_before}" if alarms else "no alarm"
    print(f"{name}: {correct / image_count:.1%} of {image_count} right; {alarm}; {verdict['why']}", flush=True)
    return correct


def list_alarms(vending: SimulatedClients) -> list[dict[str, Any]]:
    """Return all alarms in the service's drift history."""
    events = vending.request_service("GET", "/drift/history")["events"]
    return [event for event in events if event["event"] == "alarm"]


def wait_for_verdict(vending: SimulatedClients) -> dict[str, Any]:
    """Return the verdict once it counts every request that the bundle now served has answered."""

    def read_complete_verdict() -> dict[str, Any] | None:
        current: dict[str, Any] = vending.request_service("GET", "/drift")
        return current if current["images"] >= vending.answers_by_version[current["version"]] else None

    verdict: dict[str, Any] = wait_until(read_complete_verdict, 60)
    return verdict


def run_adapt(vending: SimulatedClients, cluster: Cluster, folder: Path, when: str) -> None:
    """Run jobs.adapt as in the guide to adapting and print its exit code, time and output."""
    link, start = folder / "vending", time.monotonic()
    command = [sys.executable, "-m", "jobs.adapt", "--bundle", str(link.resolve()), "--link", str(link)]
    command += ["--service", f"http://127.0.0.1:{vending.port}", "--capture-dir", str(folder / "kept")]
    result = cluster.run(*command, "--out", str(folder / "adapted"), timeout=1200)
    seconds = time.monotonic() - start
    print(f"adapt {when}: exit {result.returncode} in {seconds:.0f} s\n{result.stdout}{result.stderr[-600:]}")


if __name__ == "__main__":
    main()
