"""Train by a user's own command on the cluster, and leave its record and page as those of any run."""

import sys
from contextlib import suppress
from pathlib import Path

import ray

from equipoise.config import TrainConfig
from equipoise.hardware_facts import HardwareFacts
from equipoise.runs.folder import claim_run_folder, require_writable
from equipoise.runs.record import Record
from equipoise.runs.reports import ReportReader
from equipoise.storage.atomic import write_json
from jobs.cli.progress import follow_run
from jobs.cluster.resources import connect_to_cluster, describe_cluster, require_slots
from jobs.cluster.wait import wait_for_slots
from jobs.cluster.worker_hardware import print_machine_notes
from jobs.ray_train.lap_tracker import open_lap_tracker
from jobs.ray_train.run_channel import LAP_JOURNAL_FILE, format_journal_line
from jobs.ray_train.trackers import TrackerName
from jobs.user_command.command_run import CommandFolders
from jobs.user_command.command_worker import CommandProgress, create_command_worker, get_result, require_one_node

FOLLOW_SECONDS = 0.5
FILES_FOLDER = "files"  # in the run's folder: {out} of the command


def train_command_on_cluster(
    config: TrainConfig, out: Path, track: TrackerName | None = None, planned_machine: HardwareFacts | None = None
) -> Record | None:
    """Run a training command with the settings of a config, and return its record, or None if it was stopped."""
    ReportReader(config.metric_pattern, config.examples_pattern)  # refuses invalid patterns
    require_writable(out)
    connect_to_cluster()
    _, gpu = require_slots(config.workers, config.threads)
    require_one_node(config.workers, config.threads, gpu)
    with claim_run_folder(out, config):
        print(f"{describe_cluster()}: starting the command, once its slots are free", flush=True)
        wait_for_slots(config.workers, config.threads, gpu)
        record = follow_command(config, out, gpu, track, planned_machine)
        if record is not None:
            write_json(out / "record.json", record.to_json())
        return record


def follow_command(
    config: TrainConfig, out: Path, gpu: bool, track: TrackerName | None, planned_machine: HardwareFacts | None
) -> Record | None:
    """Start the command, show its laps as they come, and return its record; None after Ctrl-C or SIGTERM."""
    journal = out / LAP_JOURNAL_FILE
    with suppress(FileNotFoundError):
        journal.unlink()  # of a run that was stopped: this one starts over
    worker = create_command_worker(config.workers, config.threads, gpu)
    lines: list[str] = []
    try:
        with (
            open_lap_tracker(track, out, config) as tracker,
            follow_run(journal, config.max_examples, log_lap=tracker.log_lap) as progress,
        ):
            get_result(worker.start.remote(config, CommandFolders(str(Path.cwd()), str(out / FILES_FOLDER))))
            while True:
                state: CommandProgress = get_result(worker.follow.remote(FOLLOW_SECONDS))
                if planned_machine:
                    print_machine_notes(planned_machine, state.record.machine)
                    planned_machine = None
                lines += map(format_journal_line, state.record.laps[len(lines) :])
                journal.write_text("".join(lines))
                progress.show_new_laps()
                if state.has_ended:
                    tracker.log_record(state.record)
                    return state.record
    except KeyboardInterrupt:
        print("stopping the command", file=sys.stderr, flush=True)
        return None
    finally:
        ray.kill(worker)  # the command dies with it
