"""Train one trial on the cluster with Ray Train and leave its record, model and checkpoints in a folder or bucket."""

from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray.train

from dashboards import reports as pages
from dashboards.page import written
from equipoise.config import Trial
from equipoise.runs import folder as runs
from equipoise.runs.record import Lap, Record
from equipoise.storage import atomic as store
from equipoise.storage import object_store
from equipoise.storage.object_store import Url
from equipoise.training.finetune import PUBLISHED, begun, frozen, learned
from equipoise.workloads import Workload, workload
from jobs.cli.paths import require_plain
from jobs.cli.progress import following
from jobs.cluster import resources as cluster
from jobs.cluster import wait as room
from jobs.ray_train import checkpoints
from jobs.ray_train.run_channel import JOURNAL, STOP_FILE
from jobs.ray_train.stopping import GivesUp, stopping
from jobs.ray_train.trainer import Trainer, build_trainer
from jobs.ray_train.worker import worker

RESTARTS = 3  # of the group of workers, each from the last checkpoint; losing a node to its owner is not counted


def train(trial: Trial, out: Path, fewest: int | None = None) -> Record | None:
    """Train `trial` on the cluster into `out` and return its record, or None if it was stopped."""
    made = workload(trial)  # made here too, so that what is wrong with it is known at once
    if beginning := begins(trial, made):
        print(beginning, flush=True)
    runs.require_writable(out)
    before = checkpoints.last_lap(out, made.model)
    cluster.connect()
    _, gpu = cluster.require_slots(fewest or trial.workers, trial.threads)
    with runs.claimed(out, trial):
        start = f"going on after step {before.step}" if before else "from the start"
        print(f"{cluster.place()}: {start}, once its workers are up ({trial.workers} asked for)", flush=True)
        needs = fewest or trial.workers, trial.threads, gpu
        room.wait_for(*needs)
        facts = fitted(trainer(trial, out, needs[0], gpu), out, made.cap(trial), before, room.Lost(*needs))
        if facts is None:
            return None
        store.write_json(out / "record.json", facts)
        return Record.from_json(facts)


def require_urls(trial: Trial, out: Path) -> None:
    """Refuse URLs that hold secrets, and one to which nothing can be written, before anything of them is kept."""
    require_plain(trial.init, trial.data, out)
    if isinstance(object_store.place(trial.data), Url):
        raise ValueError(f"--data takes a folder, {trial.data} is a URL: copy what it holds to where all nodes see it")
    if isinstance(out, Url):
        runs.require_put(out)


def begins(trial: Trial, made: Workload) -> str:
    """Say what the model starts from, or return "" if from nothing; refuse what it cannot start from."""
    model, classes = made.model(), list(made.classes)
    frozen(model, trial.freeze)
    if (before := learned(trial)) is None:
        return ""
    same = begun(model, before, classes, trial.reuse)
    known = f": {', '.join(same)}" if same else ""
    return f"starting from {before.origin}, with the classifier's rows of {len(same)} of {len(classes)} classes{known}"


def trainer(trial: Trial, out: Path, fewest: int, gpu: bool) -> Trainer:
    """Build the trainer of a run: what it keeps, and how often a lost group of workers starts again."""
    return build_trainer(
        worker,
        {"trial": asdict(trial), "places": placed(trial), "out": str(out)},
        trial,
        out / checkpoints.FOLDER,
        gpu=gpu,
        fewest=fewest,
        checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
        failure_config=ray.train.FailureConfig(
            max_failures=RESTARTS, controller_failure_limit=cluster.patience(fewest < trial.workers)
        ),
        callbacks=[GivesUp()],
    )


def placed(trial: Trial) -> dict[str, Any]:
    """Return the options of `trial` that name files, as workers find them from their own working directory."""
    start = trial.init if trial.init in (None, PUBLISHED) else str(object_store.place(trial.init).absolute())
    return {"data": str(Path(trial.data).absolute()), "init": start}


def fitted(trainer: Trainer, out: Path, cap: int, before: Lap | None, lost: room.Lost) -> dict[str, Any] | None:
    """Run the trainer, show its progress meanwhile, and return what the workers return."""
    seen = before.seen if before else 0
    with ThreadPoolExecutor(1) as pool, following(out / JOURNAL, cap, seen) as progress, stopping(out / STOP_FILE):
        running = pool.submit(trainer.fit)
        while wait([running], timeout=0.2).not_done:
            progress.look()
            lost.look()
    facts: dict[str, Any] | None = running.result().return_value
    return facts


def leave_page(record: Record, out: Path) -> Path:
    """Write the record as a page that opens without network, and return its path."""
    return written(pages.of_run(record), out / "run.html")
