"""Folder of an observed run: its options, its laps as they end, its record, and its row of system.csv."""

import csv
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

import torch

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.hardware import describe_hardware
from equipoise.profiling.profile_report import PROFILE_FILE, TRACE_FILE, ProfileReport
from equipoise.runs.folder import claim_run_folder, require_writable
from equipoise.runs.record import Lap, Record, examples_at_target
from equipoise.runs.target import Target
from equipoise.storage.atomic import atomic_write, write_json
from equipoise.storage.path_errors import report_path_errors

RECORD_FILE, LAPS_FILE, SYSTEM_FILE = "record.json", "laps.jsonl", "system.csv"
SYSTEM_HEADER = (
    *("nodes", "workers", "batch", "seconds", "data_seconds", "exchange_seconds", "pace_sd", "gradient_bytes"),
    "repeat",
)
NO_FORWARD = "the optimizer stepped without a pass through the observed model; observe the module that the loop calls"
NO_STEP = "the optimizer made no step"
JOURNAL_SECONDS = 1.0  # between two writes to the journal: opening its file takes longer than a short lap may cost


class ObservedRun:
    """Folder of an observed run, claimed until `release`; only the first worker has one."""

    def __init__(self, out: Path, config: TrainConfig) -> None:
        require_writable(out)
        if (out / RECORD_FILE).exists():
            raise EquipoiseError(
                "path-exists",
                f"cannot observe into {out}: it holds the record of a run",
                "give another out, or remove it",
            )
        self.out, self.claim = out, ExitStack()
        self.claim.enter_context(claim_run_folder(out, config))
        for name in (LAPS_FILE, PROFILE_FILE, TRACE_FILE):  # of a run that ended without a record
            (out / name).unlink(missing_ok=True)
        self.unwritten_laps: list[Lap] = []
        self.next_write = 0.0

    def append_lap(self, lap: Lap) -> None:
        """Append a lap to the journal, with the next ones where laps take less than a second.

        A failure to write is a warning, since it must not end the training.
        """
        self.unwritten_laps.append(lap)
        if (now := time.monotonic()) < self.next_write:
            return
        lines = "".join(map(format_lap_line, self.unwritten_laps))
        self.unwritten_laps.clear()
        self.next_write = now + JOURNAL_SECONDS

        def append_lines() -> None:
            with (self.out / LAPS_FILE).open("a", encoding="utf-8") as file:
                file.write(lines)

        warn_of_failure(append_lines)

    def rewrite_laps(self, laps: Sequence[Lap], config: TrainConfig) -> None:
        """Write the journal and the options again, after the last lap or the options have changed."""
        self.unwritten_laps.clear()

        def write_files() -> None:
            with atomic_write(self.out / LAPS_FILE) as temporary:
                temporary.write_text("".join(map(format_lap_line, laps)), encoding="utf-8")
            write_json(self.out / "trial.json", asdict(config))

        warn_of_failure(write_files)

    def write_profile(self, report: ProfileReport, trace: bytes) -> None:
        """Write a profile and the trace of its steps; a failure to write is a warning."""

        def write_files() -> None:
            with atomic_write(self.out / TRACE_FILE) as temporary:
                temporary.write_bytes(trace)
            write_json(self.out / PROFILE_FILE, report.to_json())

        warn_of_failure(write_files)

    def write_results(
        self, record: Record, nodes: int, gradient_bytes: int, profiled_laps: Collection[int] = ()
    ) -> None:
        """Write the record, and the row of system.csv where steps are comparable with those of a sweep.

        Laps in which steps were profiled are longer, and left out of the row where there are others.
        """
        with report_path_errors(f"cannot write to {self.out}"):
            self.rewrite_laps(record.laps, record.config)
            write_json(self.out / RECORD_FILE, record.to_json())
            if record.laps and record.config.grad_accumulation == 1:
                usual = [lap for index, lap in enumerate(record.laps) if index not in profiled_laps]
                usual_record = replace(record, laps=usual or record.laps)
                write_step_time(self.out / SYSTEM_FILE, usual_record, nodes, gradient_bytes)

    def release(self) -> None:
        """Let other commands write to the folder."""
        self.claim.close()


def build_record(
    config: TrainConfig, device: torch.device, laps: Sequence[Lap], failure: str | None, unseen_steps: int
) -> Record:
    """Build the record of a run; `failure` is why the loop failed, `unseen_steps` were made without the model."""
    target = Target(value=config.target, lower_is_better=config.lower_is_better)
    examples_to_target = examples_at_target(laps, target)
    if failure is None and not laps:
        failure = NO_FORWARD if unseen_steps else NO_STEP
    return Record(
        config=config,
        machine=describe_hardware(device),
        laps=list(laps),
        status="failed" if failure else "max_examples" if examples_to_target is None else "reached_target",
        reason=failure,
        target=config.target,
        lower_is_better=config.lower_is_better,
        examples_to_target=examples_to_target,
        test=None,
    )


def format_lap_line(lap: Lap) -> str:
    """Format a lap as one line of JSON."""
    return json.dumps(vars(lap)) + "\n"


def warn_of_failure(write_files: Callable[[], None]) -> None:
    """Call a function that writes files, and warn if it cannot."""
    try:
        write_files()
    except (OSError, EquipoiseError) as error:
        warnings.warn(f"equipoise.observe: cannot write the laps of the run: {error}", RuntimeWarning, stacklevel=4)


def write_step_time(path: Path, record: Record, nodes: int, gradient_bytes: int) -> None:
    """Write system.csv with one row: medians over the laps, without the first one if there are others."""
    laps = record.laps[1:] or record.laps
    seconds, data, exchange = (
        [(getattr(lap, name) or 0.0) / lap.steps for lap in laps]
        for name in ("seconds", "data_seconds", "exchange_seconds")
    )
    pace_sd = statistics.stdev(map(math.log, seconds)) if len(seconds) > 1 else 0.0
    config, medians = record.config, [statistics.median(values) for values in (seconds, data, exchange)]
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(SYSTEM_HEADER)
        writer.writerow([nodes, config.workers, config.batch_size, *medians, pace_sd, gradient_bytes, False])
