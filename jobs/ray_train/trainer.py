"""Build Ray Train's trainer: where workers run and what each holds, without the helpers that no job here needs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray.train
from ray.train.torch import TorchTrainer

from equipoise.config import TrainConfig
from jobs.cluster.ray_internals import DatasetsCallback, PlacementGroupCleanerCallback, RayTrainCallback
from jobs.ray_train.arrow_filesystem import build_ray_storage_config

# Ray Data, whose imports slow the first steps of the workers beside it; and who frees the places of a run that fell: it
# asks the dashboard, which a Ray started for one job has none of, and dies where several Rays are. A job's places end
# with it, and a sweep frees those of its trials
SKIPPED_CALLBACKS = DatasetsCallback, PlacementGroupCleanerCallback
RESIZE_CHECK_SECONDS = 20.0  # how often an elastic run looks for more workers; Ray learns of new nodes no oftener


class LeanTorchTrainer(TorchTrainer):
    """Start no processes beside the workers that no job here needs."""

    def _create_default_callbacks(self) -> list[RayTrainCallback]:
        callbacks: list[RayTrainCallback] = super()._create_default_callbacks()
        return [callback for callback in callbacks if not isinstance(callback, SKIPPED_CALLBACKS)]


def build_trainer(
    worker: Callable[[dict[str, Any]], Any],
    loop_config: dict[str, Any],
    config: TrainConfig,
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
            resources_per_worker={"CPU": config.threads, **({"GPU": 1} if gpu else {})},
            elastic_resize_monitor_interval_s=RESIZE_CHECK_SECONDS,
        ),
        run_config=ray.train.RunConfig(
            name=folder.name,
            **build_ray_storage_config(folder.parent),
            logging_config=ray.train.LoggingConfig(log_level="WARNING"),
            **run_options,
        ),
    )
