"""Alarms of a served detector of products on shelves: python -m benchmarks.drift.served_shelves [--runs 10]

Clean pictures are posted first and must raise no alarm. Then each run resets the charts, posts clean and then changed
pictures, and reads the cause that the first alarm names. No picture is posted twice.
"""

import argparse
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import torch
from torch import Tensor

from benchmarks.drift.shelf_lights import (
    CHANGED_IMAGES,
    CHANGES,
    CLEAN_IMAGES,
    IMAGES_BEFORE_CHANGE,
    publish_shelf,
    render_stream,
)
from benchmarks.http_clients import build_request
from benchmarks.server_processes import deploy_application, is_answering
from equipoise.hardware import describe_hardware
from equipoise.images.png import encode_png
from equipoise.workloads.vending.renderer import Scene
from jobs.cluster.processes import find_free_ports, wait_until
from services.settings import DEFAULT_DRIFT_TIME_FRACTION
from tests.support.ray_cluster import start_cluster

CLIENTS, REPORT_SECONDS = 4, 0.5


class DetectorClient:
    """Client of a served detector that posts pictures and reads the verdict."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.num_sent = 0
        """pictures since the charts began"""

    def request(self, path: str, body: bytes | None = None, content_type: str = "image/png") -> Any:
        """Return the reply to a request; it is a POST if there is a body."""
        request = Request(f"http://127.0.0.1:{self.port}{path}", body, {"content-type": content_type})
        with urlopen(request, timeout=60) as reply:  # noqa: S310 - the address is ours
            return json.load(reply)

    def reset(self) -> None:
        """Begin the charts anew."""
        time.sleep(2 * REPORT_SECONDS)  # otherwise the last pictures would be counted after the reset
        self.request("/drift/reset", b"", "application/json")
        self.num_sent = 0

    def post_pictures(self, pictures: Tensor) -> dict[str, Any]:
        """Post pictures, several at a time, and return the verdict that counts all of them."""
        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(lambda picture: self.request("/predict", encode_png(picture)), pictures))
        self.num_sent += len(pictures)

        def read_complete_verdict() -> dict[str, Any] | None:
            verdict: dict[str, Any] = self.request("/drift")
            return verdict if verdict["images"] >= self.num_sent else None

        complete: dict[str, Any] = wait_until(read_complete_verdict, 60)
        return complete

    def list_alarms(self) -> list[dict[str, Any]]:
        """Return all alarms so far."""
        return [event for event in self.request("/drift/history")["events"] if event["event"] == "alarm"]


def main() -> None:
    """Post clean pictures and then each change in turn, and print what the service says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="number of runs for each change")
    parser.add_argument("--folder", type=Path, help="folder that keeps the run and the bundle for the next time")
    parser.add_argument("--time-fraction", type=float, default=DEFAULT_DRIFT_TIME_FRACTION, help="drift_time_fraction")
    arguments = parser.parse_args()
    print(describe_hardware(torch.device("cpu")))
    with (
        TemporaryDirectory() as name,
        serve_detector(arguments.folder or Path(name), Path(name), arguments.time_fraction) as client,
    ):
        clean = client.post_pictures(render_stream(0, CLEAN_IMAGES))
        counts = f"{clean['images']:,} clean pictures, {clean['looked_at']:,} of them observed"
        print(f"{counts}: {clean['state']}, {len(client.list_alarms())} alarms\n", flush=True)
        print("| change | alarms | right cause first | pictures until the alarm: median, most |\n|---|--:|--:|--:|")
        for place, (change, (scene, cause)) in enumerate(CHANGES.items(), 1):
            runs = [post_change(client, (10 * place + run) * CLEAN_IMAGES, scene) for run in range(arguments.runs)]
            firsts = [alarm for alarm in runs if alarm]
            right = sum(alarm["cause"] == cause for alarm in firsts)
            delays = [alarm["images"] - IMAGES_BEFORE_CHANGE for alarm in firsts]
            spread = f"{np.median(delays):.0f}, {max(delays)}" if delays else ""
            print(f"| {change} | {len(firsts)} of {len(runs)} | {right} | {spread} |", flush=True)


@contextmanager
def serve_detector(published: Path, folder: Path, time_fraction: float) -> Iterator[DetectorClient]:
    """Serve the detector of shelves on a Ray of its own, and yield its client."""
    if not (published / "bundle").exists():
        publish_shelf(published)
    (port,) = find_free_ports(1)
    arguments = {"bundle": str(published / "bundle"), "port": port, "report_seconds": REPORT_SECONDS}
    arguments |= {"drift_time_fraction": time_fraction}
    arguments |= {"capture_dir": str(folder / "captures"), "state_dir": str(folder / "state")}
    application = {"name": "shelf", "route_prefix": "/", "import_path": "services.app:build", "args": arguments}
    first_picture = build_request("/predict", encode_png(render_stream(-1, 1)[0]), "image/png")
    with start_cluster() as cluster:
        deploy_application(cluster, application)
        wait_until(lambda: is_answering(port, first_picture), 120)
        client = DetectorClient(port)
        client.reset()
        yield client


def post_change(client: DetectorClient, first: int, scene: Scene) -> dict[str, Any] | None:
    """Post clean and then changed pictures, and return the first alarm; None without one."""
    client.reset()
    alarms_before = len(client.list_alarms())
    client.post_pictures(render_stream(first, IMAGES_BEFORE_CHANGE))
    client.post_pictures(render_stream(first + IMAGES_BEFORE_CHANGE, CHANGED_IMAGES, scene))
    return next(iter(client.list_alarms()[alarms_before:]), None)


if __name__ == "__main__":
    main()
