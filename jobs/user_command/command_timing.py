"""Step times of a user's training command: short runs of it over workers and batch size, timed by its reports."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import ray

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import format_number, pluralize
from equipoise.planning.sweep_budget import suggest_budget
from equipoise.runs.folder import read_record
from equipoise.runs.record import Lap, Record
from equipoise.runs.target import Target, command_target
from equipoise.storage.atomic import write_json
from jobs.user_command.command_run import CommandFolders
from jobs.user_command.command_worker import CommandProgress, create_command_worker, get_result

MIN_TIMED_LAPS = 3  # after the first, which may begin with the start of the program
MIN_TIMED_SECONDS = 0.5  # of these laps together
MIN_STRETCH_SECONDS = 0.15  # of laps that count as one measurement
ANSWER_SECONDS = 10.0  # for a worker to answer beyond the time that it has: a pattern may take for ever on a line
POLL_SECONDS = 0.1  # between two looks at what was reported
MIN_BATCH_SIZES = 2  # they identify the fixed time of a step and that of each example


class CommandTiming(NamedTuple):
    """Step time of one setting, and what measuring it took."""

    workers: int
    batch: int
    seconds: float
    """seconds per step"""
    pace_sd: float
    """standard deviation of log seconds per step between laps"""
    elapsed_seconds: float
    """seconds from the start of the command to its end"""


TimeSetting = Callable[[int, int, float], CommandTiming]
"""times a number of workers and a batch size within so many seconds"""


class CommandTimer:
    """Timer of short runs of a command, one after the other with nothing else running."""

    def __init__(self, base: TrainConfig, folder: Path, working: str, gpu: bool) -> None:
        self.base, self.folder, self.working, self.gpu = base, folder, working, gpu
        self.worker: Any = None
        self.worker_count = 0  # workers of the command that `worker` has room for
        self.has_timed = False

    def time_setting(self, workers: int, batch: int, max_seconds: float) -> CommandTiming:
        """Return the timing that an earlier sweep has left of a setting, or time it."""
        path = self.folder / f"{workers}x{batch}.json"
        if path.exists():
            return summarize_laps(read_record(path), 0.0)
        self._start_worker(workers)
        started_at = time.monotonic()
        record = self._run_command(workers, batch, max_seconds)
        write_json(path, record.to_json())
        return summarize_laps(record, time.monotonic() - started_at)

    def _start_worker(self, workers: int) -> None:
        """Start a worker with room for so many workers of the command, unless there is one."""
        if self.worker_count != workers:
            self.close()
            self.worker, self.worker_count = create_command_worker(workers, self.base.threads, self.gpu), workers
            get_result(self.worker.stop.remote())  # once it is there

    def _run_command(self, workers: int, batch: int, max_seconds: float) -> Record:
        """Run the command until it has reported enough laps to time a step; refuse one that does not report them."""
        lr = self.base.lr * math.sqrt(workers * batch / 32)
        config = replace(self.base, workers=workers, batch_size=batch, lr=lr, target=None)
        files = self.folder / f"{workers}x{batch}"
        get_result(self.worker.start.remote(config, CommandFolders(self.working, str(files))))
        started_at = time.monotonic()
        while True:
            progress: CommandProgress = get_result(
                self.worker.follow.remote(POLL_SECONDS), max_seconds + ANSWER_SECONDS
            )
            is_late = time.monotonic() - started_at > max_seconds
            if progress.has_ended or has_enough_laps(progress.record.laps) or is_late:
                break
        get_result(self.worker.stop.remote())
        require_timed_laps(progress.record, max_seconds, get_result(self.worker.describe_output.remote()))
        if not self.has_timed:
            require_distant_target(progress.record.laps, command_target(self.base))
        self.has_timed = True
        return progress.record

    def close(self) -> None:
        """End the worker, and the command with it."""
        if self.worker is not None:
            ray.kill(self.worker)
            self.worker, self.worker_count = None, 0


def has_enough_laps(laps: Sequence[Lap]) -> bool:
    """Return whether laps tell the time of a step."""
    return len(laps) > MIN_TIMED_LAPS and sum(lap.seconds for lap in laps[1:]) >= MIN_TIMED_SECONDS


def require_timed_laps(record: Record, max_seconds: float, last_lines: str) -> None:
    """Refuse a command that reported nothing while it was timed, or failed before it had reported enough."""
    if has_enough_laps(record.laps) or (record.laps and not record.failed):
        return
    config = record.config
    setting = f"{pluralize(config.workers, 'worker')} x {config.batch_size}"
    reason = record.reason or f"it reported no examples within {format_number(max_seconds)} s; {last_lines}"
    raise EquipoiseError(
        "command-unusable",
        f"cannot time the command at {setting}: {reason}",
        "" if record.reason else suggest_reports(config),
    )


def suggest_reports(config: TrainConfig) -> str:
    """Suggest how a command that reported nothing could report."""
    if config.examples_pattern:
        return f"--examples-pattern {config.examples_pattern!r} matched none of its lines"
    return "let it call equipoise.report, print JSON lines, or give --examples-pattern and --metric-pattern"


def require_distant_target(laps: Sequence[Lap], target: Target) -> None:
    """Refuse a target that the first metric has reached already: all settings would seem equally good."""
    first = next((lap.metric for lap in laps if lap.metric is not None), None)
    if first is not None and target.is_reached(first):
        raise EquipoiseError(
            "command-unusable",
            f"cannot sweep the command: its first metric, {first:g}, has reached the target of {target.describe()}",
            "let it report more often or give a target that is harder to reach"
            + ("" if target.lower_is_better else "; if a lower metric is better, as with a loss, --lower-is-better"),
        )


def summarize_laps(record: Record, elapsed_seconds: float) -> CommandTiming:
    """Return the seconds per step over all laps but the first, which counts only where it is the only one."""
    laps = record.laps[1:] or record.laps
    stretches = group_into_stretches(laps)
    paces = [sum(lap.seconds for lap in stretch) / sum(lap.examples for lap in stretch) for stretch in stretches]
    return CommandTiming(
        workers=record.config.workers,
        batch=record.config.batch_size,
        seconds=statistics.median(paces) * record.config.global_batch,
        pace_sd=float(np.std(np.log(paces), ddof=1)) if len(paces) > 1 else 0.0,
        elapsed_seconds=elapsed_seconds,
    )


def group_into_stretches(laps: Sequence[Lap]) -> list[list[Lap]]:
    """Group laps into stretches that are long enough for the clock; a short rest joins the last one."""
    stretches: list[list[Lap]] = [[]]
    for lap in laps:
        if sum(earlier.seconds for earlier in stretches[-1]) >= MIN_STRETCH_SECONDS:
            stretches.append([])
        stretches[-1].append(lap)
    if len(stretches) > 1 and sum(lap.seconds for lap in stretches[-1]) < MIN_STRETCH_SECONDS:
        stretches[-2:] = [stretches[-2] + stretches[-1]]
    return stretches


def time_settings(
    batches_by_workers: dict[int, list[int]], time_setting: TimeSetting, max_seconds: float
) -> list[CommandTiming]:
    """Time batch sizes on each number of workers, in the order of their worth, as long as there is time.

    A batch size at which the command fails, for lack of memory perhaps, ends the list for its number of workers; the
    smallest must work.
    """
    deadline = time.monotonic() + max_seconds
    timings: list[CommandTiming] = []
    for index, (workers, batches) in enumerate(sorted(batches_by_workers.items(), reverse=True)):
        part_deadline = time.monotonic() + (deadline - time.monotonic()) / (len(batches_by_workers) - index)
        timings += time_batches(workers, batches, time_setting, part_deadline)
        done = sum(timing.workers == workers for timing in timings)
        if done < min(MIN_BATCH_SIZES, len(batches)):
            slowest = max(timing.elapsed_seconds for timing in timings)
            needed = MIN_BATCH_SIZES * slowest * len(batches_by_workers)
            budget = suggest_budget(timing_seconds=needed, given_timing_seconds=max_seconds)
            raise EquipoiseError(
                "budget-too-small",
                f"timing the command at one batch size takes {format_number(slowest)} s, and there is no time for two"
                f" on {pluralize(workers, 'worker')}: this sweep needs about {budget} s",
                f"give --budget-seconds {budget}, or let the command report more often",
            )
    return timings


def time_batches(workers: int, batches: list[int], time_setting: TimeSetting, deadline: float) -> list[CommandTiming]:
    """Time batch sizes on one number of workers until the deadline: the ends first, then the widest gaps."""
    timings: list[CommandTiming] = []
    largest = math.inf
    for batch in order_by_worth(batches):
        seconds_left = deadline - time.monotonic()
        slowest = max((timing.elapsed_seconds for timing in timings), default=0.0)
        if batch >= largest or (timings and slowest > seconds_left):
            continue
        try:
            timings.append(time_setting(workers, batch, max(seconds_left, MIN_TIMED_SECONDS)))
        except EquipoiseError as error:
            if not timings:
                raise
            largest = batch
            print(f"left out: {error}", flush=True)
    return timings


def order_by_worth(batches: list[int]) -> list[int]:
    """Return batch sizes with the smallest first, then the largest, then those furthest from any other."""
    ordered, pending = sorted(batches)[:1], sorted(batches)[1:]
    if pending:
        ordered.append(pending.pop())
    while pending:
        gaps = {batch: min(abs(math.log(batch / other)) for other in ordered) for batch in pending}
        ordered.append(max(pending, key=lambda batch: (round(gaps[batch], 9), -batch)))
        pending.remove(ordered[-1])
    return ordered
