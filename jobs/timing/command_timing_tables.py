"""Step times of a sweep that runs a user's command, as the tables that its plan is made of."""

import time
from dataclasses import fields
from pathlib import Path

import pandas as pd

from equipoise.config import TrainConfig
from equipoise.formatting import format_number
from equipoise.hardware_facts import describe_machine
from jobs.cluster.wait import wait_for_slots
from jobs.timing.timing_records import ExchangeTiming, TimingTables
from jobs.user_command.command_timing import CommandTimer, time_settings
from jobs.user_command.command_worker import require_one_node


def time_command_ladders(
    base: TrainConfig, batches_by_workers: dict[int, list[int]], folder: Path, gpu: bool, max_seconds: float
) -> TimingTables:
    """Time a command at the batch sizes that there is time for, on each number of workers."""
    require_one_node(max(batches_by_workers), base.threads, gpu)
    wait_for_slots(max(batches_by_workers), base.threads, gpu)
    folder.mkdir(parents=True, exist_ok=True)
    limit = f", for at most {format_number(max_seconds)} s" if max_seconds < float("inf") else ""
    count = sum(map(len, batches_by_workers.values()))
    print(f"timing the command at up to {count} settings of workers and batch size{limit}", flush=True)
    started_at = time.time()
    timer = CommandTimer(base, folder, str(Path.cwd()), gpu)
    try:
        timings = time_settings(batches_by_workers, timer.time_setting, max_seconds)
    finally:
        timer.close()
    rows = [
        {"nodes": 1, "workers": timing.workers, "batch": timing.batch, "seconds": timing.seconds,
         "pace_sd": timing.pace_sd, "repeat": False}
        for timing in timings
    ]  # fmt: skip
    return TimingTables(
        pd.DataFrame(rows),
        pd.DataFrame([], columns=[field.name for field in fields(ExchangeTiming)]),
        describe_machine(),
        started_at,
    )
