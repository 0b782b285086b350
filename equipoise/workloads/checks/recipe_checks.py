"""Checks that a workload can be trained by the recipes that the options ask for."""

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.workloads.base import Workload


def check_recipes(name: str, workload: Workload, config: TrainConfig) -> None:
    """Refuse recipes that the workload has no labels or inputs for, and a batch that outgrows its examples."""
    if config.label_smoothing or config.mixup:
        from equipoise.workloads.recipes.label_smoothing import smooth_labels  # other runs need neither
        from equipoise.workloads.recipes.mixup import require_blendable

        smooth_labels(workload, config.label_smoothing)
        if config.mixup:
            require_blendable(workload)
    largest = config.global_batch * max((stage.factor for stage in config.batch_growth.stages), default=1)
    if largest > len(workload.train):
        raise EquipoiseError(
            "workload-invalid",
            f"--grow-batch {config.grow_batch} ends at a global batch of {largest:,}, but the training split of {name}"
            f" holds {len(workload.train):,} examples",
            "choose a smaller last factor",
        )
