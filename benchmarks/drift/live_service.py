"""Alarms for six changes, each repeated, on the running service: python -m benchmarks.drift.live_service [--runs 10]

First come clean requests, which must raise no alarm. Then each run resets the charts, sends clean and then drifted
requests, and reads the cause named by the first alarm and the verdict at the end.
"""

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.drift.end_to_end import REPORT_SECONDS, list_alarms, serve_vending, wait_for_verdict
from equipoise.hardware import describe_hardware
from equipoise.workloads.vending.renderer import Scene
from jobs.demo.service_clients import MAX_CONCURRENT_REQUESTS
from jobs.demo.traffic import PRODUCT_NAMES, SimulatedClients
from tests.support.ray_cluster import start_cluster

CLEAN_REQUESTS, REQUESTS_BEFORE_CHANGE, DRIFTED_REQUESTS, CLASS_GONE_REQUESTS = 3000, 300, 480, 1200
CHANGES = {
    "light of 4500 K": (Scene(kelvin=4500), "colour temperature"),
    "veil of 6 % and a highlight": (Scene(veil=0.06, highlight=0.2), "reflection"),
    "blur of 0.8 pixels": (Scene(blur=0.8), "blur"),
    "exposure of -0.6 stops": (Scene(exposure=-0.6), "exposure"),
    "noise of 0.04": (Scene(noise=0.04), "noise"),
    "a class gone": (None, "label shift"),
}


@dataclass(frozen=True)
class ChangeResult:
    """Alarm and verdict of one run with a change."""

    cause: str | None
    """cause named by the first alarm; None without an alarm"""
    delay: int | None
    """requests from the change to the first alarm; None without an alarm"""
    since_error: float
    """error of the number of requests since the change in the final verdict, as a fraction of the true number"""


def main() -> None:
    """Measure every change and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="number of runs for each change")
    runs = parser.parse_args().runs
    print(describe_hardware(torch.device("cpu")))
    with TemporaryDirectory() as name, start_cluster() as cluster, serve_vending(cluster, Path(name)) as vending:
        clean, _ = vending.render_images(CLEAN_REQUESTS)
        send_requests(vending, clean, np.arange(CLEAN_REQUESTS))
        state = wait_for_verdict(vending)["state"]
        print(f"{CLEAN_REQUESTS} clean requests: {state}, {len(list_alarms(vending))} alarms\n", flush=True)
        print("| change | alarms | right cause first | median delay | since: off at most |\n|---|--:|--:|--:|--:|")
        for change, (scene, cause) in CHANGES.items():
            drifted = vending.render_images(1000, scene)
            results = [
                measure_change(vending, clean, draw_drifted_requests(scene, drifted, seed), seed)
                for seed in range(runs)
            ]
            print(format_table_row(change, cause, results), flush=True)
        print(f"\nfailed requests: {len(vending.failure_reasons)} {vending.failure_reasons[:2]}")


def draw_drifted_requests(scene: Scene | None, drifted: tuple[Tensor, list[str]], seed: int) -> Tensor:
    """Draw the drifted images of one run; without a scene, images of all products but one."""
    rng, (images, names) = np.random.default_rng(seed), drifted
    indices = (
        np.arange(len(names)) if scene else np.flatnonzero(np.array(names) != PRODUCT_NAMES[seed % len(PRODUCT_NAMES)])
    )
    return images[rng.choice(indices, DRIFTED_REQUESTS if scene else CLASS_GONE_REQUESTS)]


def measure_change(vending: SimulatedClients, clean: Tensor, drifted: Tensor, seed: int) -> ChangeResult:
    """Reset the charts, send clean and then drifted requests, and return the first alarm and the final error."""
    time.sleep(2 * REPORT_SECONDS)  # otherwise the last requests of the previous run are counted in this one
    vending.request_service("POST", "/drift/reset")
    vending.answers_by_version.clear()
    old_alarms, first_alarm = len(list_alarms(vending)), None
    send_requests(vending, clean, np.random.default_rng(100 + seed).integers(0, len(clean), REQUESTS_BEFORE_CHANGE))
    wait_for_verdict(vending)
    send_requests(vending, drifted, np.arange(len(drifted)))
    final = wait_for_verdict(vending)
    new_alarms = list_alarms(vending)[old_alarms:]
    first_alarm = new_alarms[0] if new_alarms else None
    if first_alarm is None or not final["since"]:
        return ChangeResult(None, None, 1.0)
    delay = first_alarm["images"] - REQUESTS_BEFORE_CHANGE
    return ChangeResult(first_alarm["cause"], delay, abs(final["since"]["images_ago"] - len(drifted)) / len(drifted))


def send_requests(vending: SimulatedClients, images: Tensor, indices: Any) -> None:
    """Send one label request for each index, several at a time."""
    with ThreadPoolExecutor(MAX_CONCURRENT_REQUESTS) as clients:
        list(clients.map(lambda index: vending.predict_image(images[index]), indices.tolist()))


def format_table_row(change: str, cause: str, results: list[ChangeResult]) -> str:
    """Format the results of one change as a row of the table."""
    delays = [result.delay for result in results if result.delay is not None]
    right = sum(result.cause == cause for result in results)
    median = f"{np.median(delays):.0f}" if delays else ""
    since_error = max(result.since_error for result in results)
    return f"| {change} | {len(delays)} | {right} of {len(results)} | {median} | {since_error:.0%} |"


if __name__ == "__main__":
    main()
