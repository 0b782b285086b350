"""Build Ray Train's trainer: where workers run and what each reserves, without helpers that are not needed here."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import ray.train
from ray.train.torch import TorchTrainer

from equipoise.type_aliases import JsonObject
from jobs.cluster.ray_internals import DatasetsCallback, PlacementGroupCleanerCallback, RayTrainCallback
from jobs.cluster.resources import worker_resources
from jobs.ray_train.arrow_filesystem import build_ray_storage_config
from jobs.ray_train.stopping import explain_failure

# Ray Data slows the first steps of the workers by its imports. The cleaner of placement groups asks the dashboard,
# which a Ray started for one job does not have, and fails where several Rays run; it is not needed, because placement
# groups end with their job, and a sweep removes those of its trials.
SKIPPED_CALLBACKS = DatasetsCallback, PlacementGroupCleanerCallback
RESIZE_CHECK_SECONDS = 20.0  # interval in which an elastic run looks for more workers; Ray sees new nodes no sooner


class WorkerGroupSize(Protocol):
    """Options that say how many workers a job has, as those of training do."""

    @property
    def workers(self) -> int:
        """Number of workers that the job starts."""

    @property
    def threads(self) -> int:
        """Number of CPUs that each worker reserves."""


class LeanTorchTrainer(TorchTrainer):
    """Trainer without Ray's default callbacks that are not needed here, and with errors for the command line."""

    work = "training"
    failure_hint = "the same command resumes from the last checkpoint"

    def fit(self) -> ray.train.Result:
        """Run the workers and return their result; refuse or fail with the error that ended them."""
        try:
            return super().fit()
        except ray.train.TrainingFailedError as error:
            raise explain_failure(error, self.work, self.failure_hint) from error

    def _create_default_callbacks(self) -> list[RayTrainCallback]:
        callbacks: list[RayTrainCallback] = super()._create_default_callbacks()
        return [callback for callback in callbacks if not isinstance(callback, SKIPPED_CALLBACKS)]


def build_trainer(
    worker: Callable[[JsonObject], object],
    loop_config: JsonObject,
    config: WorkerGroupSize,
    folder: Path,
    *,
    gpu: bool,
    min_workers: int | None = None,
    **run_options: Any,
) -> LeanTorchTrainer:
    """Build a trainer that runs `worker(loop_config)` in `config.workers` processes.

    Each process reserves `config.threads` CPUs, and a GPU if `gpu`. With `min_workers` below `config.workers` the run
    is elastic. Ray keeps its own files in `folder`; `run_options` go to `ray.train.RunConfig`.
    """
    return LeanTorchTrainer(
        worker,
        train_loop_config=loop_config,
        scaling_config=ray.train.ScalingConfig(
            num_workers=config.workers if min_workers in (None, config.workers) else (min_workers, config.workers),
            use_gpu=gpu,
            resources_per_worker=worker_resources(config.threads, gpu),
            elastic_resize_monitor_interval_s=RESIZE_CHECK_SECONDS,
        ),
        run_config=ray.train.RunConfig(
            name=folder.name,
            **build_ray_storage_config(folder.parent),
            logging_config=ray.train.LoggingConfig(log_level="WARNING"),
            **run_options,
        ),
    )


def fit_in_thread(trainer: LeanTorchTrainer) -> Any:
    """Run the trainer and return what its first worker returned; in the main thread Ray would handle Ctrl-C."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(trainer.fit).result().return_value
    finally:
        pool.shutdown(wait=False)
