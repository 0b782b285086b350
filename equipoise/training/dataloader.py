"""Batches as the model takes them: on its device, in its dtype, and augmented for training."""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from itertools import islice, tee

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.config import TrainConfig
from equipoise.training.sampler import (
    MicroBatch,
    MicroBatchOrder,
    group_micro_batches,
    read_batches,
)
from equipoise.workloads import Split, Workload
from equipoise.workloads.base import cast_floats
from equipoise.workloads.batch import Batch, list_tensors, map_tensors, split_batch

PARAMETER_DTYPES = {"fp32": torch.float32, "bf16": torch.float32, "fp64": torch.float64}  # also of sums
PREFETCH_BYTES = 1 << 20  # inputs prepared at a time, so that they fit a processor's cache

InputsAndTargets = tuple[Batch, Batch]


class BatchLoader:
    """Loader of the inputs and targets of one worker."""

    def __init__(self, config: TrainConfig, workload: Workload, device: torch.device) -> None:
        self.config = config
        self.device = device
        self.dtype = PARAMETER_DTYPES[config.precision]
        self.train_split = split_to_device(workload.train, device)
        self.augment = workload.augment if config.augment else None
        self.transform = workload.input_transform(device, self.dtype)
        self.shard_sizes: Sequence[int] | None = getattr(self.train_split.inputs, "shard_sizes", None)
        self.order = MicroBatchOrder(
            config.seed, len(self.train_split), config.batch_size, config.num_micro_batches, self.shard_sizes
        )

    def train_batches(self, micro_indices: range, step: int) -> Iterator[InputsAndTargets]:
        """Yield augmented inputs and targets of this worker's micro-batches from `step` on, without end.

        Small micro-batches of several steps are prepared at once, because the calls cost more than the work. The
        grouping does not depend on `step`, so a resumed run computes the same as an uninterrupted one.
        """
        steps_per_group = self._prefetch_steps(len(micro_indices))
        skipped_steps = (step - self.order.first_step) % steps_per_group
        # of its own, as it keeps the order of an epoch
        micros = copy(self.order).iterate(micro_indices, step - skipped_steps)
        # examples that are read one by one may be padded, which must not depend on other micro-batches
        group_size = steps_per_group * len(micro_indices) if self.train_split.is_in_memory else 1
        return islice(self._make_batches(micros, group_size), skipped_steps * len(micro_indices), None)

    def load_micro_batch(self, step: int, micro_index: int) -> InputsAndTargets:
        """Return the augmented inputs and targets of any micro-batch, read in this process."""
        micro = self.order.select(step, micro_index)
        return self._prepare_examples(*self.train_split.read_examples(micro.examples), micro.epochs, micro.examples)

    def load_micro_batches(self, places: Sequence[tuple[int, int]]) -> Iterator[InputsAndTargets]:
        """Yield the micro-batches of these steps and indices in turn, which may be in any order."""
        micros = (self.order.select(step, micro_index) for step, micro_index in places)
        group_size = self._prefetch_steps(1) if self.train_split.is_in_memory else 1
        return self._make_batches(micros, group_size)

    def _prefetch_steps(self, num_micro_batches: int) -> int:
        """Return the number of steps whose examples are prepared at a time."""
        if not self.train_split.is_in_memory:
            return 1
        return max(1, PREFETCH_BYTES // max(1, self.input_bytes * self.config.batch_size * num_micro_batches))

    @property
    def input_bytes(self) -> int:
        """Bytes of the inputs of an example about as the model takes them; 0 of one that is not in memory."""
        if not self.train_split.is_in_memory:
            return 0
        tensors = list_tensors(self.train_split.read_examples([0])[0])
        return sum(tensor.numel() * max(tensor.element_size(), self.dtype.itemsize) for tensor in tensors)

    def _make_batches(self, micros: Iterator[MicroBatch], group_size: int) -> Iterator[InputsAndTargets]:
        """Yield inputs and targets of each micro-batch, preparing `group_size` of them at a time."""
        config = self.config
        groups, groups_to_read = tee(group_micro_batches(micros, group_size))
        loaded = read_batches(self.train_split, (examples for _, examples in groups_to_read), config.threads)
        for epochs, examples in groups:  # not zipped with what is loaded, of which zip would keep the last
            inputs, targets = self._prepare_examples(*next(loaded), epochs, examples)
            if group_size == 1:
                yield inputs, targets
            else:
                yield from zip(
                    split_batch(inputs, config.batch_size), split_batch(targets, config.batch_size), strict=True
                )

    def _prepare_examples(
        self, inputs: Batch, targets: Batch, epochs: NDArray[np.int64], examples: NDArray[np.int64]
    ) -> InputsAndTargets:
        """Return inputs and targets as the model takes them, augmented as examples of their epochs."""
        inputs, targets = self._to_device(inputs), self._to_device(targets)
        if self.augment:
            inputs, targets = self.augment(inputs, targets, self.config.seed, epochs, examples)
        return self.prepare_inputs(inputs), self.prepare_targets(targets)

    def eval_batches(self, split: Split, rank: int, workers: int, size: int) -> Iterator[InputsAndTargets]:
        """Yield inputs and targets of a split without augmentation: every batch of `size` that falls to `rank`."""
        batches = torch.arange(len(split)).split(size)[rank::workers]
        for inputs, targets in read_batches(split, (batch.numpy() for batch in batches), self.config.threads):
            yield self.prepare_inputs(self._to_device(inputs)), self.prepare_targets(self._to_device(targets))

    def prepare_inputs(self, inputs: Batch) -> Batch:
        """Return inputs as the model takes them, images in the memory format that the options ask for."""
        inputs = self.transform(inputs)
        return map_tensors(inputs, to_channels_last) if self.config.channels_last else inputs

    def prepare_targets(self, targets: Batch) -> Batch:
        """Return targets with floating-point numbers in the dtype of the model."""
        return map_tensors(targets, lambda tensor: cast_floats(tensor, self.dtype))

    def _to_device(self, batch: Batch) -> Batch:
        return map_tensors(batch, lambda tensor: tensor.to(self.device, non_blocking=True))


def to_channels_last(tensor: Tensor) -> Tensor:
    """Return a batch of images in channels-last memory format, and any other tensor as it is."""
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor


def split_to_device(split: Split, device: torch.device) -> Split:
    """Return the split on `device` if its examples are held in memory, else the split itself."""
    if not split.is_in_memory:
        return split
    inputs, targets = (map_tensors(batch, lambda tensor: tensor.to(device)) for batch in (split.inputs, split.targets))
    return replace(split, inputs=inputs, targets=targets)
