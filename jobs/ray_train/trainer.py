"""Build Ray Train's trainer: where workers run and what each holds, without the helpers that no job here needs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray.train
from ray.train.torch import TorchTrainer

from equipoise.config import Trial
from jobs.cluster.ray_internals import DatasetsCallback, PlacementGroupCleanerCallback, RayTrainCallback
from jobs.ray_train import arrow_filesystem as storage

# Ray Data, whose imports slow the first steps of the workers beside it; and who frees the places of a run that fell: it
# asks the dashboard, which a Ray started for one job has none of, and dies where several Rays are. A job's places end
# with it, and a sweep frees those of its trials
NEEDLESS = DatasetsCallback, PlacementGroupCleanerCallback
RESIZE_SECONDS = 20.0  # how often an elastic run looks for more workers; Ray learns of new nodes no oftener


class Trainer(TorchTrainer):
    """Start no processes beside the workers that no job here needs."""

    def _create_default_callbacks(self) -> list[RayTrainCallback]:
        callbacks: list[RayTrainCallback] = super()._create_default_callbacks()
        return [callback for callback in callbacks if not isinstance(callback, NEEDLESS)]


def build_trainer(
    worker: Callable[[dict[str, Any]], Any],
    config: dict[str, Any],
    trial: Trial,
    place: Path,
    *,
    gpu: bool,
    fewest: int | None = None,
    **run_options: Any,
) -> Trainer:
    """Build a trainer that runs `worker(config)` in as many processes as `trial` asks for.

    Each process holds the trial's threads as CPUs, and a GPU if `gpu`. With `fewest` below the trial's workers the run
    is elastic. Ray keeps its own files in the folder `place`; `run_options` go to `ray.train.RunConfig`.
    """
    return Trainer(
        worker,
        train_loop_config=config,
        scaling_config=ray.train.ScalingConfig(
            num_workers=trial.workers if fewest in (None, trial.workers) else (fewest, trial.workers),
            use_gpu=gpu,
            resources_per_worker={"CPU": trial.threads, **({"GPU": 1} if gpu else {})},
            elastic_resize_monitor_interval_s=RESIZE_SECONDS,
        ),
        run_config=ray.train.RunConfig(
            name=place.name,
            **storage.of(place.parent),
            logging_config=ray.train.LoggingConfig(log_level="WARNING"),
            **run_options,
        ),
    )
