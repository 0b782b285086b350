"""The goals for drift, each measured.

python -m benchmarks.drift [--references 20] [--alarms 800] [--streams 20] [--only NAMES]
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.drift import diagnosis
from benchmarks.drift import peer_detectors as peers
from benchmarks.drift import run_lengths as lengths
from benchmarks.drift.alarm_delays import HEAD, SCENES, row, strength, told
from benchmarks.drift.costs import anytime, batch, looking
from benchmarks.drift.image_pool import OTHER, Pool, pool, reference
from equipoise.hardware import describe_hardware
from equipoise.workloads.vending.renderer import Scene

ASKED, RUNS, SIZES = (10_000.0, 100_000.0), (1.0, 20.0, 100.0), (16, 64)
POOL = 30_000


def main() -> None:
    """Print the tables."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--references", type=int, default=20)
    asked.add_argument("--alarms", type=int, default=800, help="false ones that are expected in each row")
    asked.add_argument("--streams", type=int, default=20, help="that change, for each change")
    asked.add_argument("--only", nargs="*", help="names of tables")
    given = asked.parse_args()
    print(", ".join(f"{name} {value}" for name, value in describe_hardware(torch.device("cpu")).items()))
    clean = pool(POOL)
    for name, table in TABLES.items():
        if not given.only or name in given.only:
            print(f"\n{name}\n", flush=True)
            print("\n".join(table(clean, given)), flush=True)


def run_lengths(clean: Pool, given: Any) -> list[str]:
    """Clean pictures to a false alarm."""
    few = given.alarms // 4  # of the longer run length
    cases = [(ASKED[0], runs, size, given.alarms) for size in SIZES for runs in RUNS]
    cases += [(ASKED[1], runs, SIZES[0], few) for runs in RUNS]
    return lengths.table(clean, given.references, cases)


def changes(clean: Pool, given: Any) -> list[str]:
    """Requests to an alarm, and its cause."""
    known, lines = reference(), [*HEAD]
    for name, (scene, cause, goal) in SCENES.items():
        drifted = pool(3000, scene, OTHER)
        found = [told(known, clean, drifted, seed) for seed in range(given.streams)]
        lines.append(row(name, found, goal, cause, strength(known, drifted)))
        print(lines[-1], flush=True)
    others = pool(6000, Scene(), OTHER)
    found = []
    for seed in range(given.streams):
        without = others.some(np.flatnonzero(others.labels != seed % 10))
        found.append(told(known, clean, without, seed))
    lines.append(row("one of ten classes gone", found, 500, "label shift", None))
    return lines


TABLES: dict[str, Callable[[Pool, Any], list[str]]] = {
    "lengths": run_lengths,
    "delays": changes,
    "diagnosis": lambda clean, given: diagnosis.table(reference(), clean, given.streams),
    "batch": lambda clean, given: batch(),
    "cost": lambda clean, given: looking(),
    "anytime": lambda clean, given: anytime(clean, reference(), given.streams * 10),
    "peers": lambda clean, given: peers.table(reference(), clean, given),
}

if __name__ == "__main__":
    main()
