"""Pictures as the model takes them: on its device, in its type, scaled, and augmented if they are for training."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, tee

import torch
from torch import Tensor

from equipoise.config import TrainConfig
from equipoise.training.sampler import MicroBatch, group_micro_batches, iterate_micro_batches, read_batches
from equipoise.workloads import Split, Workload

PARAMETER_DTYPES = {"fp32": torch.float32, "bf16": torch.float32, "fp64": torch.float64}  # of weights and sums
EVAL_BATCH_SIZE = 256
PREFETCH_BYTES = 1 << 20  # made at a time: what fits a processor's cache


class BatchLoader:
    """The images and labels of one worker."""

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
        """Augmented images and labels of `places`, micro-batch by micro-batch from `step` on, without end.

        Those of several steps are made at once if they are small: the calls cost more than the work. Which
        ones does not depend on `step`, so that a resumed run computes what the undisturbed one did.
        """
        trial, steps = self.config, self._prefetch_steps(len(micro_indices))
        begun = step % steps
        micros = iterate_micro_batches(
            trial.seed, len(self.train_split), trial.batch_size, trial.num_micro_batches, micro_indices, step - begun
        )
        made = self._make_batches(micros, steps * len(micro_indices))
        return islice(made, begun * len(micro_indices), None)

    def _prefetch_steps(self, num_micro_batches: int) -> int:
        """Steps whose examples are made at a time."""
        pictures = self.train_split.pictures
        if not isinstance(pictures, Tensor):
            return 1
        one = pictures[0].numel() * self.scale.element_size()
        return max(1, PREFETCH_BYTES // (one * self.config.batch_size * num_micro_batches))

    def _make_batches(self, micros: Iterator[MicroBatch], group_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and labels of each micro-batch, `count` of them made at a time."""
        trial = self.config
        wanted, ahead = tee(group_micro_batches(micros, group_size))
        read = read_batches(self.train_split, (examples for _, examples in ahead), trial.threads)
        for (epochs, examples), (pictures, labels) in zip(wanted, read, strict=True):
            pictures, labels = self._to_device(pictures, labels)
            if self.augment:
                pictures = self.augment(pictures, trial.seed, epochs, examples)
            yield from zip(
                self.normalize(pictures).split(trial.batch_size), labels.split(trial.batch_size), strict=True
            )

    def eval_batches(self, split: Split, rank: int, workers: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and labels of a split as they are: every batch that falls to worker `rank`."""
        batches = torch.arange(len(split)).split(EVAL_BATCH_SIZE)[rank::workers]
        for pictures, labels in read_batches(split, (batch.numpy() for batch in batches), self.config.threads):
            pictures, labels = self._to_device(pictures, labels)
            yield self.normalize(pictures), labels

    def normalize(self, pictures: Tensor) -> Tensor:
        """(uint8 / 255 - mean) / std, in the layout asked for."""
        images = pictures.to(self.scale.dtype).mul_(self.scale).add_(self.offset)
        return images.contiguous(memory_format=torch.channels_last) if self.config.channels_last else images

    def _to_device(self, pictures: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        if pictures.device == self.device:
            return pictures, labels
        return pictures.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)


def split_to_device(split: Split, device: torch.device) -> Split:
    """The split where its pictures are needed, if they are in memory at all."""
    if not isinstance(split.pictures, Tensor):
        return split
    return replace(split, pictures=split.pictures.to(device), labels=split.labels.to(device))
