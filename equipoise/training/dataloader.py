"""Batches as the model takes them: on its device, in its dtype, normalized, and augmented for training."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, tee

import torch
from torch import Tensor

from equipoise.config import TrainConfig
from equipoise.training.sampler import MicroBatch, group_micro_batches, iterate_micro_batches, read_batches
from equipoise.workloads import Split, Workload

PARAMETER_DTYPES = {"fp32": torch.float32, "bf16": torch.float32, "fp64": torch.float64}  # also of sums
EVAL_BATCH_SIZE = 256
PREFETCH_BYTES = 1 << 20  # images prepared at a time, so that they fit a processor's cache


class BatchLoader:
    """Loader of the images and labels of one worker."""

    def __init__(self, config: TrainConfig, workload: Workload, device: torch.device) -> None:
        self.config = config
        self.device = device
        self.train_split = split_to_device(workload.train, device)
        self.augment = workload.augment if config.augment else None
        mean, std = (
            torch.tensor(values, dtype=torch.float64).view(-1, 1, 1) for values in (workload.mean, workload.std)
        )
        self.scale = (1 / (255 * std)).to(device, PARAMETER_DTYPES[config.precision])
        self.offset = (-mean / std).to(device, PARAMETER_DTYPES[config.precision])

    def train_batches(self, micro_indices: range, step: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield augmented images and labels of this worker's micro-batches from `step` on, without end.

        Small micro-batches of several steps are prepared at once, because the calls cost more than the work. The
        grouping does not depend on `step`, so a resumed run computes the same as an uninterrupted one.
        """
        config, steps_per_group = self.config, self._prefetch_steps(len(micro_indices))
        skipped_steps = step % steps_per_group
        micros = iterate_micro_batches(
            config.seed,
            len(self.train_split),
            config.batch_size,
            config.num_micro_batches,
            micro_indices,
            step - skipped_steps,
        )
        batches = self._make_batches(micros, steps_per_group * len(micro_indices))
        return islice(batches, skipped_steps * len(micro_indices), None)

    def _prefetch_steps(self, num_micro_batches: int) -> int:
        """Return the number of steps whose examples are prepared at a time."""
        pictures = self.train_split.pictures
        if not isinstance(pictures, Tensor):
            return 1
        image_bytes = pictures[0].numel() * self.scale.element_size()
        return max(1, PREFETCH_BYTES // (image_bytes * self.config.batch_size * num_micro_batches))

    def _make_batches(self, micros: Iterator[MicroBatch], group_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images and labels of each micro-batch, preparing `group_size` of them at a time."""
        config = self.config
        groups, groups_to_read = tee(group_micro_batches(micros, group_size))
        loaded = read_batches(self.train_split, (examples for _, examples in groups_to_read), config.threads)
        for (epochs, examples), (pictures, labels) in zip(groups, loaded, strict=True):
            pictures, labels = self._to_device(pictures, labels)
            if self.augment:
                pictures = self.augment(pictures, config.seed, epochs, examples)
            yield from zip(
                self.normalize(pictures).split(config.batch_size), labels.split(config.batch_size), strict=True
            )

    def eval_batches(self, split: Split, rank: int, workers: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images and labels of a split without augmentation: every batch that falls to worker `rank`."""
        batches = torch.arange(len(split)).split(EVAL_BATCH_SIZE)[rank::workers]
        for pictures, labels in read_batches(split, (batch.numpy() for batch in batches), self.config.threads):
            pictures, labels = self._to_device(pictures, labels)
            yield self.normalize(pictures), labels

    def normalize(self, pictures: Tensor) -> Tensor:
        """Return (uint8 / 255 - mean) / std, in the memory format that the options ask for."""
        images = pictures.to(self.scale.dtype).mul_(self.scale).add_(self.offset)
        return images.contiguous(memory_format=torch.channels_last) if self.config.channels_last else images

    def _to_device(self, pictures: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        if pictures.device == self.device:
            return pictures, labels
        return pictures.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)


def split_to_device(split: Split, device: torch.device) -> Split:
    """Return the split on `device` if its images are held in memory, else the split itself."""
    if not isinstance(split.pictures, Tensor):
        return split
    return replace(split, pictures=split.pictures.to(device), labels=split.labels.to(device))
