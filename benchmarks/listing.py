"""What it costs to list many records: python -m benchmarks.listing [--records 100000].

The files are as a sweep writes them, with ten laps each. The cost is CPU seconds of this process, since wall time
varies with whatever runs beside. Measured in pairs: the table of jobs.records, and the same columns by json and the
dataclasses that a single record is read into.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import torch

from equipoise.hardware import describe_hardware
from equipoise.runs.folder import read_record
from equipoise.runs.listing import RECORD_COLUMNS, list_records
from equipoise.runs.record import Record
from tests.unit.dashboards.test_training_run import record

PAIRS = 3
TRIALS_PER_SWEEP = 1000  # trials in the folder of one sweep
LAPS_PER_RECORD = 10


def main() -> None:
    """Print the seconds of both ways to list the records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    count = parser.parse_args().records
    print(describe_hardware(torch.device("cpu")))
    with TemporaryDirectory() as name:
        size = write_records(Path(name), count)
        print(f"{count:,} records of {size / 1e3:.1f} kB")
        print("| | CPU s | lowest | highest | wall s |\n|---|--:|--:|--:|--:|")
        listers: dict[str, Callable[[Path], int]] = {
            "jobs.records": count_by_table,
            "json and dataclasses": count_one_by_one,
        }
        times = {title: [] for title in listers}
        for _ in range(PAIRS):
            for title, list_all in listers.items():
                times[title].append(time_listing(list_all, Path(name), count))
    for title, measured in times.items():
        cpu, wall = zip(*measured, strict=True)
        median_cpu, median_wall = statistics.median(cpu), statistics.median(wall)
        print(f"| {title} | {median_cpu:.2f} | {min(cpu):.2f} | {max(cpu):.2f} | {median_wall:.2f} |")


def write_records(root: Path, count: int) -> float:
    """Write records into the trial folders of sweeps and return the bytes of the last one."""
    rng = random.Random(0)  # noqa: S311 - as many digits as measurements have
    laps = record().laps * (LAPS_PER_RECORD // len(record().laps))
    noisy = {"loss", "seconds", "data_seconds", "compute_seconds", "exchange_seconds", "local_norm", "total_norm"}
    laps = [replace(lap, **{name: rng.random() for name in noisy}) for lap in laps]
    example = replace(
        record(), laps=laps, machine=describe_hardware(torch.device("cpu")), examples_to_target=rng.random()
    )
    facts = example.to_json()
    for seed in range(count):
        folder = root / f"sweep-{seed // TRIALS_PER_SWEEP}" / "trials"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"batch-32-lr-0.05-seed-{seed}.json"
        text = json.dumps(facts | {"config": asdict(replace(example.config, seed=seed))}, indent=1)
        path.write_text(text + "\n")  # as write_json does, but not atomically
    return path.stat().st_size


def count_by_table(root: Path) -> int:
    """Return the number of records in the table of list_records."""
    listing = list_records(root)
    assert not listing.damaged_files
    return len(listing.rows)


def count_one_by_one(root: Path) -> int:
    """Return the number of records in a table of the same columns, each read by read_record."""
    rows = [build_row(path, read_record(path)) for path in sorted(root.rglob("trials/*.json"))]
    return len(pd.DataFrame(rows, columns=[*RECORD_COLUMNS]))


def build_row(path: Path, record: Record) -> tuple[object, ...]:
    """Build the table row of one record."""
    config = record.config
    options = (config.name, config.model, config.optimizer, config.workers, config.batch_size)
    setting = (config.grad_accumulation, config.global_batch, config.lr, config.seed)
    last_seen = record.laps[-1].seen
    target = (record.target, record.lower_is_better, record.examples_to_target)
    return (str(path), *options, *setting, record.status, *target, last_seen, record.seconds, record.test)


def time_listing(list_all: Callable[[Path], int], root: Path, count: int) -> tuple[float, float]:
    """Return the CPU and wall seconds that one way to list the records takes."""
    cpu, wall = time.process_time(), time.perf_counter()
    assert list_all(root) == count
    return time.process_time() - cpu, time.perf_counter() - wall


if __name__ == "__main__":
    main()
