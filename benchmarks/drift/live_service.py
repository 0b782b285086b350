"""Six changes, each some times, on the running service: python -m benchmarks.drift.live_service [--runs 10]

First clean requests, for which nobody may be called. Then each run: charts begin anew, clean requests, drifted ones,
and what the first alarm said, and what the verdict says at the end.
"""

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.drift.end_to_end import TICK, served, verdict
from equipoise.hardware import describe_hardware
from equipoise.workloads.vending.renderer import Scene
from jobs.demo.traffic import MAX_CONCURRENT_REQUESTS, PRODUCT_NAMES, SimulatedClients
from tests.support.ray_cluster import running

CLEAN, BEFORE, DRIFTED, RARER = 3000, 300, 480, 1200
SCENES = {
    "light of 4500 K": (Scene(kelvin=4500), "colour temperature"),
    "veil of 6 % and a highlight": (Scene(veil=0.06, highlight=0.2), "reflection"),
    "blur of 0.8 pixels": (Scene(blur=0.8), "blur"),
    "exposure of -0.6 stops": (Scene(exposure=-0.6), "exposure"),
    "noise of 0.04": (Scene(noise=0.04), "noise"),
    "a class gone": (None, "label shift"),
}


@dataclass(frozen=True)
class Seen:
    """Of one run."""

    cause: str | None
    """at the first alarm"""
    delay: int | None
    off: float
    """share by which since when is off, at the end"""


def main() -> None:
    """Print what was seen."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--runs", type=int, default=10)
    runs = asked.parse_args().runs
    print(", ".join(f"{name} {value}" for name, value in describe_hardware(torch.device("cpu")).items()))
    with TemporaryDirectory() as name, running() as cluster, served(cluster, Path(name)) as vending:
        pictures, _ = vending.render_images(CLEAN)
        send(vending, pictures, np.arange(CLEAN))
        print(f"{CLEAN} clean requests: {verdict(vending)['state']}, {len(alarms(vending))} alarms\n", flush=True)
        print("| change | alarms | right cause first | median delay | since: off at most |\n|---|--:|--:|--:|--:|")
        for change, (scene, cause) in SCENES.items():
            drifted = vending.render_images(1000, scene)
            found = [run(vending, pictures, chosen(scene, drifted, seed), seed) for seed in range(runs)]
            print(row(change, cause, found), flush=True)
        print(f"\nnot answered: {len(vending.failure_reasons)} {vending.failure_reasons[:2]}")


def chosen(scene: Scene | None, drifted: tuple[Tensor, list[str]], seed: int) -> Tensor:
    """Drifted requests of a run."""
    rng, (pictures, names) = np.random.default_rng(seed), drifted
    places = (
        np.arange(len(names)) if scene else np.flatnonzero(np.array(names) != PRODUCT_NAMES[seed % len(PRODUCT_NAMES)])
    )
    return pictures[rng.choice(places, DRIFTED if scene else RARER)]


def run(vending: SimulatedClients, clean: Tensor, drifted: Tensor, seed: int) -> Seen:
    """One change."""
    time.sleep(2 * TICK)  # or the last few requests of the run before count into this one
    vending.request_service("POST", "/drift/reset")
    vending.answers_by_version.clear()
    before, first = len(alarms(vending)), None
    send(vending, clean, np.random.default_rng(100 + seed).integers(0, len(clean), BEFORE))
    verdict(vending)
    send(vending, drifted, np.arange(len(drifted)))
    end = verdict(vending)
    new = alarms(vending)[before:]
    first = new[0] if new else None
    if first is None or not end["since"]:
        return Seen(None, None, 1.0)
    delay = first["images"] - BEFORE
    return Seen(first["cause"], delay, abs(end["since"]["images"] - len(drifted)) / len(drifted))


def send(vending: SimulatedClients, pictures: Tensor, places: Any) -> None:
    """Requests for labels, a few at once."""
    with ThreadPoolExecutor(MAX_CONCURRENT_REQUESTS) as clients:
        ask: Callable[[int], str | None] = lambda place: vending.predict_label(pictures[place])  # noqa: E731
        list(clients.map(ask, places.tolist()))


def alarms(vending: SimulatedClients) -> list[dict[str, Any]]:
    """All so far."""
    return [one for one in vending.request_service("GET", "/drift/history")["events"] if one["event"] == "alarm"]


def row(change: str, cause: str, found: list[Seen]) -> str:
    """Of the table."""
    delays = [one.delay for one in found if one.delay is not None]
    right = sum(one.cause == cause for one in found)
    middle = f"{np.median(delays):.0f}" if delays else ""
    return f"| {change} | {len(delays)} | {right} of {len(found)} | {middle} | {max(one.off for one in found):.0%} |"


if __name__ == "__main__":
    main()
