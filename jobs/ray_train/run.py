"""Train one trial on the cluster with Ray Train and leave its record, model and checkpoints in a folder or bucket."""

from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, replace
from pathlib import Path

import ray
import ray.train

from equipoise.config import TrainConfig
from equipoise.hardware_facts import HardwareFacts
from equipoise.runs.folder import claim_run_folder, require_writable, require_writable_url
from equipoise.runs.misclassified import read_misclassified
from equipoise.runs.record import Lap, Record
from equipoise.storage.atomic import write_json
from equipoise.storage.object_store import RemotePath, parse_location
from equipoise.storage.user_paths import make_absolute
from equipoise.training.finetune import TORCHVISION_WEIGHTS
from equipoise.training.initialization.initial_model import build_initial_model
from equipoise.workloads import load_workload
from jobs.cli.paths import validate_locations
from jobs.cli.progress import follow_run
from jobs.cluster.lost_head import explain_lost_head, watch_head
from jobs.cluster.resources import connect_to_cluster, describe_cluster, require_slots, set_worker_group_timeout
from jobs.cluster.wait import LostWorkersNotice, wait_for_slots
from jobs.cluster.worker_hardware import find_worker_hardware, print_machine_notes
from jobs.ray_train.checkpoints import CHECKPOINTS_FOLDER, find_last_lap
from jobs.ray_train.command_training import train_command_on_cluster
from jobs.ray_train.lap_tracker import LapTracker, open_lap_tracker
from jobs.ray_train.run_channel import LAP_JOURNAL_FILE, STOP_FILE
from jobs.ray_train.run_notes import print_run_notes
from jobs.ray_train.stopping import StopOnLastingError, stop_on_signal
from jobs.ray_train.trackers import TrackerName
from jobs.ray_train.trainer import LeanTorchTrainer, build_trainer
from jobs.ray_train.worker import TrainWorkerConfig, train_worker

MAX_WORKER_GROUP_FAILURES = 3  # restarts of the workers from the last checkpoint; preempted nodes are not counted


def train_on_cluster(
    config: TrainConfig,
    out: Path,
    min_workers: int | None = None,
    track: TrackerName | None = None,
    planned_machine: HardwareFacts | None = None,
) -> Record | None:
    """Train on the cluster into `out` and return the record, or None if the run was stopped.

    Print a note if the workers are of another kind than `planned_machine`, on which the plan was measured, or have
    other versions of the software.
    """
    if config.command:
        return train_command_on_cluster(config, out, track, planned_machine)
    workload = load_workload(config)  # loaded here too, so that errors show at once
    print_run_notes(config, workload)
    require_writable(out)
    last_lap = find_last_lap(out, config, lambda: build_initial_model(config, workload).model)
    connect_to_cluster()
    _, gpu = require_slots(min_workers or config.workers, config.threads)
    with claim_run_folder(out, config):
        start = f"resuming after step {last_lap.step}" if last_lap else "training from the start"
        print(f"{describe_cluster()}: {start}, once the workers are up ({config.workers} requested)", flush=True)
        required = min_workers or config.workers, config.threads, gpu
        wait_for_slots(*required)
        if planned_machine:
            print_machine_notes(planned_machine, find_worker_hardware(config.threads, gpu))
        with open_lap_tracker(track, out, config) as tracker:
            record = fit_with_progress(
                build_run_trainer(config, out, required[0], gpu),
                out,
                workload.max_examples(config),
                last_lap,
                LostWorkersNotice(*required),
                tracker,
            )
            if record is None:
                return None
            write_json(out / "record.json", record.to_json())
            tracker.log_record(record)
            return record


def require_usable_locations(config: TrainConfig, out: Path) -> None:
    """Refuse URLs that contain secrets, and an --out that cannot be written."""
    validate_locations(config.init_from, config.data, out)
    if isinstance(out, RemotePath):
        require_writable_url(out)


def build_run_trainer(config: TrainConfig, out: Path, min_workers: int, gpu: bool) -> LeanTorchTrainer:
    """Build the trainer of a run, which keeps two checkpoints and restarts failed workers."""
    return build_trainer(
        train_worker,
        asdict(TrainWorkerConfig(config=config, resolved_config=resolve_trial_paths(config), out=str(out))),
        config,
        out / CHECKPOINTS_FOLDER,
        gpu=gpu,
        min_workers=min_workers,
        checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
        failure_config=ray.train.FailureConfig(
            max_failures=MAX_WORKER_GROUP_FAILURES,
            controller_failure_limit=set_worker_group_timeout(min_workers < config.workers),
        ),
        callbacks=[StopOnLastingError()],
    )


def resolve_trial_paths(config: TrainConfig) -> TrainConfig:
    """Return the options with absolute paths, because workers have their own working directory."""
    if config.command:
        return config
    init_from = (
        config.init_from
        if config.init_from in (None, TORCHVISION_WEIGHTS)
        else str(parse_location(config.init_from).absolute())
    )
    return replace(
        config, data=make_absolute(config.data), init_from=init_from, model=make_model_absolute(config.model)
    )


def make_model_absolute(model: str | None) -> str | None:
    """Return the name of a model with an absolute path if it is a folder of transformers, as in hf:FOLDER."""
    kind, _, name = (model or "").partition(":")
    is_folder = kind == "hf" and (Path(name) / "config.json").is_file()
    return f"{kind}:{make_absolute(name)}" if is_folder else model


def fit_with_progress(
    trainer: LeanTorchTrainer,
    out: Path,
    max_examples: int,
    last_lap: Lap | None,
    lost_workers_notice: LostWorkersNotice,
    tracker: LapTracker,
) -> Record | None:
    """Run the trainer, show its progress here and in a tracker meanwhile, and return the record of its workers."""
    seen, head = last_lap.seen if last_lap else 0, ray.get_runtime_context().gcs_address
    with (
        explain_lost_head(head),
        ThreadPoolExecutor(1) as pool,
        follow_run(out / LAP_JOURNAL_FILE, max_examples, seen, tracker.log_lap) as progress,
        stop_on_signal(out / STOP_FILE, progress.has_progress),
        watch_head(head),
    ):
        future = pool.submit(trainer.fit)
        while wait([future], timeout=0.2).not_done:
            progress.show_new_laps()
            lost_workers_notice.check_cluster()
        record: Record | None = future.result().return_value
    return record


def write_run_page(record: Record, out: Path) -> Path:
    """Write the record as a page that opens without a network, and return its path."""
    from dashboards.page import write_page  # takes a second to import, which the first lap need not wait for
    from dashboards.reports import run_page

    return write_page(run_page(record, read_misclassified(out)), out / "run.html")
