"""Checks of a workload of labelled images."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from equipoise.errors import EquipoiseError
from equipoise.workloads.base import Split
from equipoise.workloads.image_workload import ImageWorkload


def check_image_split(description: str, split: Split, class_count: int) -> None:
    """Refuse a split whose labels do not fit its images or the classes."""
    labels = split.targets
    if not isinstance(labels, Tensor) or labels.dtype != torch.int64 or labels.ndim != 1:
        raise EquipoiseError(
            "workload-invalid", f"{description} must have labels as a tensor of int64, one number per image"
        )
    if len(split.inputs) != len(labels):
        raise EquipoiseError(
            "workload-invalid",
            f"{description} has {len(split.inputs)} images and {len(labels)} labels",
            "give one label per image",
        )
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= class_count:
        raise EquipoiseError(
            "workload-invalid",
            f"{description} has labels from {low} to {high}, but there are "
            f"{class_count} classes: 0 to {class_count - 1}",
        )
    image = split.inputs[0]
    if image.dtype != torch.uint8 or image.ndim != 3:
        raise EquipoiseError(
            "workload-invalid",
            f"{description} must have images as uint8 (channels, height, width), got {image.dtype} "
            f"{tuple(image.shape)}",
            "give a Workload instead of an ImageWorkload for other inputs",
        )


def check_normalization(name: str, workload: ImageWorkload) -> None:
    """Refuse a mean or standard deviation that does not fit the channels."""
    channels = workload.train.inputs[0].shape[0]
    normalization: tuple[tuple[Sequence[float], str], ...] = ((workload.mean, "mean"), (workload.std, "std"))
    for values, quantity in normalization:
        if len(values) not in (1, channels) or not all(math.isfinite(value) for value in values):
            raise EquipoiseError(
                "workload-invalid",
                f"{name}: its {quantity} is {values}",
                f"it needs one finite number, or one per channel: the images have {channels} channels",
            )
    if any(value <= 0 for value in workload.std):
        raise EquipoiseError("workload-invalid", f"{name}: its std is {workload.std}", "every number must be above 0")


def check_scores(name: str, scores: object) -> None:
    """Refuse outputs of a model for two images that are not one row of scores per image."""
    if not isinstance(scores, Tensor) or scores.ndim != 2 or len(scores) != 2:
        raise EquipoiseError("workload-invalid", f"{name}: its model must return one row of scores per image")
