"""Train one trial on the cluster with Ray Train and leave its record, model and checkpoints in a folder or bucket."""

from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray.train

from dashboards.page import write_page
from dashboards.reports import run_page
from equipoise.config import TrainConfig
from equipoise.runs.folder import claim_run_folder, require_writable, require_writable_url
from equipoise.runs.record import Lap, Record
from equipoise.storage.atomic import write_json
from equipoise.storage.object_store import RemotePath, parse_location
from equipoise.training.finetune import TORCHVISION_WEIGHTS, freeze_stages, initialize_from_pretrained, load_pretrained
from equipoise.workloads import Workload, load_workload
from jobs.cli.paths import validate_locations
from jobs.cli.progress import follow_run
from jobs.cluster.resources import connect_to_cluster, describe_cluster, require_slots, set_worker_group_timeout
from jobs.cluster.wait import LostWorkersNotice, wait_for_slots
from jobs.ray_train.checkpoints import CHECKPOINTS_FOLDER, find_last_lap
from jobs.ray_train.run_channel import LAP_JOURNAL_FILE, STOP_FILE
from jobs.ray_train.stopping import StopWhenStoreUnavailable, stop_on_signal
from jobs.ray_train.trainer import LeanTorchTrainer, build_trainer
from jobs.ray_train.worker import train_worker

MAX_WORKER_GROUP_FAILURES = (
    3  # of the group of workers, each from the last checkpoint; losing a node to its owner is not counted
)


def train_on_cluster(config: TrainConfig, out: Path, min_workers: int | None = None) -> Record | None:
    """Train `trial` on the cluster into `out` and return its record, or None if it was stopped."""
    made = load_workload(config)  # made here too, so that what is wrong with it is known at once
    if beginning := describe_initialization(config, made):
        print(beginning, flush=True)
    require_writable(out)
    before = find_last_lap(out, made.model)
    connect_to_cluster()
    _, gpu = require_slots(min_workers or config.workers, config.threads)
    with claim_run_folder(out, config):
        start = f"going on after step {before.step}" if before else "from the start"
        print(f"{describe_cluster()}: {start}, once its workers are up ({config.workers} asked for)", flush=True)
        needs = min_workers or config.workers, config.threads, gpu
        wait_for_slots(*needs)
        facts = fit_with_progress(
            build_run_trainer(config, out, needs[0], gpu),
            out,
            made.max_examples(config),
            before,
            LostWorkersNotice(*needs),
        )
        if facts is None:
            return None
        write_json(out / "record.json", facts)
        return Record.from_json(facts)


def require_usable_locations(config: TrainConfig, out: Path) -> None:
    """Refuse URLs that hold secrets, and one to which nothing can be written, before anything of them is kept."""
    validate_locations(config.init_from, config.data, out)
    if isinstance(parse_location(config.data), RemotePath):
        raise ValueError(f"--data takes a folder, {config.data} is a URL: copy what it holds to where all nodes see it")
    if isinstance(out, RemotePath):
        require_writable_url(out)


def describe_initialization(config: TrainConfig, workload: Workload) -> str:
    """Say what the model starts from, or return "" if from nothing; refuse what it cannot start from."""
    model, classes = workload.model(), list(workload.classes)
    freeze_stages(model, config.freeze_stages)
    if (before := load_pretrained(config)) is None:
        return ""
    same = initialize_from_pretrained(model, before, classes, config.reuse_head)
    known = f": {', '.join(same)}" if same else ""
    return f"starting from {before.origin}, with the classifier's rows of {len(same)} of {len(classes)} classes{known}"


def build_run_trainer(config: TrainConfig, out: Path, min_workers: int, gpu: bool) -> LeanTorchTrainer:
    """Build the trainer of a run: what it keeps, and how often a lost group of workers starts again."""
    return build_trainer(
        train_worker,
        {"config": asdict(config), "places": resolve_trial_paths(config), "out": str(out)},
        config,
        out / CHECKPOINTS_FOLDER,
        gpu=gpu,
        min_workers=min_workers,
        checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
        failure_config=ray.train.FailureConfig(
            max_failures=MAX_WORKER_GROUP_FAILURES,
            controller_failure_limit=set_worker_group_timeout(min_workers < config.workers),
        ),
        callbacks=[StopWhenStoreUnavailable()],
    )


def resolve_trial_paths(config: TrainConfig) -> dict[str, Any]:
    """Return the options of `trial` that name files, as workers find them from their own working directory."""
    start = (
        config.init_from
        if config.init_from in (None, TORCHVISION_WEIGHTS)
        else str(parse_location(config.init_from).absolute())
    )
    return {"data": str(Path(config.data).absolute()), "init_from": start}


def fit_with_progress(
    trainer: LeanTorchTrainer,
    out: Path,
    max_examples: int,
    last_lap: Lap | None,
    lost_workers_notice: LostWorkersNotice,
) -> dict[str, Any] | None:
    """Run the trainer, show its progress meanwhile, and return what the workers return."""
    seen = last_lap.seen if last_lap else 0
    with (
        ThreadPoolExecutor(1) as pool,
        follow_run(out / LAP_JOURNAL_FILE, max_examples, seen) as progress,
        stop_on_signal(out / STOP_FILE),
    ):
        running = pool.submit(trainer.fit)
        while wait([running], timeout=0.2).not_done:
            progress.show_new_laps()
            lost_workers_notice.check_cluster()
    facts: dict[str, Any] | None = running.result().return_value
    return facts


def write_run_page(record: Record, out: Path) -> Path:
    """Write the record as a page that opens without network, and return its path."""
    return write_page(run_page(record), out / "run.html")
