"""Measure the drift detectors against their goals, one table for each.

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
from benchmarks.drift.alarm_delays import (
    CHANGES,
    TABLE_HEADER,
    format_table_row,
    measure_alarm_delay,
    measure_max_shift,
)
from benchmarks.drift.costs import measure_false_betting_alarms, measure_permutation_test, measure_replica_cost
from benchmarks.drift.image_pool import DRIFTED_FIRST_INDEX, ImagePool, load_vending_profile, render_image_pool
from equipoise.hardware import describe_hardware
from equipoise.workloads.vending.renderer import Scene

REQUESTED_RUN_LENGTHS, CLASS_RUN_LENGTHS, STEP_SIZES = (10_000.0, 100_000.0), (1.0, 20.0, 100.0), (16, 64)
POOL_SIZE = 30_000  # images


def main() -> None:
    """Measure and print the selected tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--references", type=int, default=20, help="number of reference sets in each row of run lengths"
    )
    parser.add_argument("--alarms", type=int, default=800, help="number of false alarms expected in each row")
    parser.add_argument("--streams", type=int, default=20, help="number of streams simulated for each change")
    parser.add_argument("--only", nargs="*", help="names of the tables to print; all by default")
    options = parser.parse_args()
    print(describe_hardware(torch.device("cpu")))
    clean = render_image_pool(POOL_SIZE)
    for name, build_table in TABLES.items():
        if not options.only or name in options.only:
            print(f"\n{name}\n", flush=True)
            print("\n".join(build_table(clean, options)), flush=True)


def build_run_length_table(clean: ImagePool, options: Any) -> list[str]:
    """Return the table of clean images between false alarms."""
    long_run_alarms = options.alarms // 4  # fewer for the longer run length
    cases = [
        (REQUESTED_RUN_LENGTHS[0], class_run, size, options.alarms)
        for size in STEP_SIZES
        for class_run in CLASS_RUN_LENGTHS
    ]
    cases += [(REQUESTED_RUN_LENGTHS[1], class_run, STEP_SIZES[0], long_run_alarms) for class_run in CLASS_RUN_LENGTHS]
    return lengths.build_table(clean, options.references, cases)


def build_delay_table(clean: ImagePool, options: Any) -> list[str]:
    """Return the table of requests from a change to its alarm, and of the cause named."""
    profile, lines = load_vending_profile(), [*TABLE_HEADER]
    for name, (scene, cause, goal) in CHANGES.items():
        drifted = render_image_pool(3000, scene, DRIFTED_FIRST_INDEX)
        results = [measure_alarm_delay(profile, clean, drifted, seed) for seed in range(options.streams)]
        lines.append(format_table_row(name, results, goal, cause, measure_max_shift(profile, drifted)))
        print(lines[-1], flush=True)
    fresh = render_image_pool(6000, Scene(), DRIFTED_FIRST_INDEX)
    results = []
    for seed in range(options.streams):
        without_class = fresh.select(np.flatnonzero(fresh.labels != seed % 10))
        results.append(measure_alarm_delay(profile, clean, without_class, seed))
    lines.append(format_table_row("one of ten classes gone", results, 500, "label shift", None))
    return lines


TABLES: dict[str, Callable[[ImagePool, Any], list[str]]] = {
    "lengths": build_run_length_table,
    "delays": build_delay_table,
    "diagnosis": lambda clean, options: diagnosis.build_table(load_vending_profile(), clean, options.streams),
    "batch": lambda clean, options: measure_permutation_test(),
    "cost": lambda clean, options: measure_replica_cost(),
    "anytime": lambda clean, options: measure_false_betting_alarms(clean, load_vending_profile(), options.streams * 10),
    "peers": lambda clean, options: peers.build_table(load_vending_profile(), clean, options),
}

if __name__ == "__main__":
    main()
