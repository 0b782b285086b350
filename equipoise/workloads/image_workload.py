"""Workloads of labelled images: uint8 images in, one score for each class out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from equipoise.errors import EquipoiseError
from equipoise.workloads.base import Split, Workload
from equipoise.workloads.batch import Batch


def top1_correct(logits: Tensor, labels: Tensor) -> Tensor:
    """Return 1 for each example whose highest score is its label's, else 0; the mean is the top-1 accuracy."""
    return (logits.argmax(1) == labels).double()


@dataclass(frozen=True, kw_only=True)
class ImageWorkload(Workload):
    """Learning task on labelled images, which can be published, served and watched for drift.

    The inputs of its splits are images as uint8 (examples, channels, height, width), or a sequence that reads one at a
    time, and the targets are indices of classes as int64. Images reach the model as (uint8 / 255 - mean) / std, channel
    by channel.
    """

    classes: Sequence[str]
    """class names in the order of the labels"""
    mean: Sequence[float]
    """mean of each channel, as a fraction of 255"""
    std: Sequence[float]
    """standard deviation of each channel, as a fraction of 255"""
    loss: Callable[[Any, Any], Tensor] = F.cross_entropy
    """maps (logits, labels) to the mean loss of a batch"""
    metric: Callable[[Any, Any], Tensor] = top1_correct
    """maps (logits, labels) to one value per example, whose mean is the metric"""
    false_alarm_split: Split | None = None
    """examples distributed as the reference, to count false drift alarms on; the validation split if not given"""

    def input_transform(self, device: torch.device, dtype: torch.dtype) -> Callable[[Batch], Batch]:
        """Return what maps uint8 images to (uint8 / 255 - mean) / std."""
        mean, std = (torch.tensor(values, dtype=torch.float64).view(-1, 1, 1) for values in (self.mean, self.std))
        scale, offset = (1 / (255 * std)).to(device, dtype), (-mean / std).to(device, dtype)
        return lambda images: images.to(dtype).mul_(scale).add_(offset)


def require_image_workload(workload: Workload, purpose: str) -> ImageWorkload:
    """Return a workload of labelled images; refuse any other, for which there is no such `purpose`."""
    if isinstance(workload, ImageWorkload):
        return workload
    raise EquipoiseError(
        "workload-invalid",
        f"cannot {purpose}: {workload.name} is a {type(workload).__name__}, and this needs labelled images",
        "give an equipoise.ImageWorkload",
    )
