"""Ray Train's trainer without what no job here needs."""

from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks import DatasetsCallback  # private, and Ray is pinned
from ray.train.v2._internal.execution.callback import RayTrainCallback


class Trainer(TorchTrainer):
    """Starts no process for Ray Data, whose imports slow the first steps of the workers beside it."""

    def _create_default_callbacks(self) -> list[RayTrainCallback]:
        callbacks: list[RayTrainCallback] = super()._create_default_callbacks()
        return [callback for callback in callbacks if not isinstance(callback, DatasetsCallback)]
