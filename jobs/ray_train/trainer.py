"""Ray Train's trainer without what no job here needs."""

from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks import DatasetsCallback  # private, and Ray is pinned
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.callback import RayTrainCallback

# Ray Data, whose imports slow the first steps of the workers beside it; and who frees the places of a run that fell: it
# asks the dashboard, which a Ray started for one job has none of, and dies where several Rays are. A job's places end
# with it, and a sweep frees those of its trials
NEEDLESS = DatasetsCallback, PlacementGroupCleanerCallback


class Trainer(TorchTrainer):
    """Starts no processes beside the workers that no job here needs."""

    def _create_default_callbacks(self) -> list[RayTrainCallback]:
        callbacks: list[RayTrainCallback] = super()._create_default_callbacks()
        return [callback for callback in callbacks if not isinstance(callback, NEEDLESS)]
