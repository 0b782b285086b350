"""What it costs to list many records: python -m benchmarks.listing [--records 100000]

Files as a sweep leaves them, with ten laps each; CPU seconds of this process, for the wall's swing with whatever runs
beside. In pairs, one after the other: the table of jobs.records, and the same columns by json and the dataclasses that
one record is read into.
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
FOLDER = 1000  # trials of one sweep
LAPS = 10


def main() -> None:
    """Print the table."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--records", type=int, default=100_000)
    count = asked.parse_args().records
    print(", ".join(f"{name} {value}" for name, value in describe_hardware(torch.device("cpu")).items()))
    with TemporaryDirectory() as name:
        size = made(Path(name), count)
        print(f"{count:,} records of {size / 1e3:.1f} kB")
        print("| | CPU s | lowest | highest | wall s |\n|---|--:|--:|--:|--:|")
        ways: dict[str, Callable[[Path], int]] = {"jobs.records": table, "json and dataclasses": one_by_one}
        times = {words: [] for words in ways}
        for _ in range(PAIRS):
            for words, way in ways.items():
                times[words].append(timed(way, Path(name), count))
    for words, found in times.items():
        cpu, wall = zip(*found, strict=True)
        middle, whole = statistics.median(cpu), statistics.median(wall)
        print(f"| {words} | {middle:.2f} | {min(cpu):.2f} | {max(cpu):.2f} | {whole:.2f} |")


def made(root: Path, count: int) -> float:
    """Records, in folders of a sweep's trials; gives the bytes of the last."""
    draw = random.Random(0)  # noqa: S311 - digits as measurements have them
    laps = record().laps * (LAPS // len(record().laps))
    noisy = {"loss", "seconds", "data_seconds", "compute_seconds", "exchange_seconds", "local_norm", "total_norm"}
    laps = [replace(lap, **{name: draw.random() for name in noisy}) for lap in laps]
    one = replace(record(), laps=laps, machine=describe_hardware(torch.device("cpu")), examples_to_target=draw.random())
    facts = one.to_json()
    for seed in range(count):
        place = root / f"sweep-{seed // FOLDER}" / "trials"
        place.mkdir(parents=True, exist_ok=True)
        path = place / f"batch-32-lr-0.05-seed-{seed}.json"
        text = json.dumps(facts | {"config": asdict(replace(one.config, seed=seed))}, indent=1)
        path.write_text(text + "\n")  # as store.write_json does, without the care for what would be cut off
    return path.stat().st_size


def table(root: Path) -> int:
    """Records in the product's table."""
    found = list_records(root)
    assert not found.damaged_files
    return len(found.rows)


def one_by_one(root: Path) -> int:
    """The same columns by what reads a single record."""
    rows = [facts(path, read_record(path)) for path in sorted(root.rglob("trials/*.json"))]
    return len(pd.DataFrame(rows, columns=[*RECORD_COLUMNS]))


def facts(path: Path, one: Record) -> tuple[object, ...]:
    """A row."""
    trial = one.config
    asked = (trial.workload, trial.model, trial.optimizer, trial.workers, trial.batch_size, trial.grad_accumulation)
    end = (one.status, one.target, one.examples_to_target, one.laps[-1].seen, one.seconds, one.test)
    return (str(path), *asked, trial.global_batch, trial.lr, trial.seed, *end)


def timed(way: Callable[[Path], int], root: Path, count: int) -> tuple[float, float]:
    """CPU and wall seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    assert way(root) == count
    return time.process_time() - cpu, time.perf_counter() - wall


if __name__ == "__main__":
    main()
