"""Order of examples: which ones a worker sees at each step."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import pluralize
from equipoise.order import ExampleOrder, example_order
from equipoise.workloads import Split
from equipoise.workloads.batch import Batch, select_examples

BATCHES_AHEAD = 2  # that each process reads before they are asked for


class MicroBatch(NamedTuple):
    """Indices of the examples in a micro-batch, each with its epoch, because a batch may span two."""

    step: int
    micro_index: int
    epochs: NDArray[np.int64]
    examples: NDArray[np.int64]


def rank_micro_batches(num_micro_batches: int, rank: int, workers: int) -> range:
    """Return the consecutive micro-batches of a global batch that fall to a worker, as evenly as possible."""
    if workers > num_micro_batches:
        raise ValueError(
            f"{workers} workers cannot share {num_micro_batches} micro-batches: start at most {num_micro_batches}"
        )
    return range(rank * num_micro_batches // workers, (rank + 1) * num_micro_batches // workers)


def list_own_micro_batches(config: TrainConfig, rank: int, processes: int) -> range:
    """Return the micro-batches that a process computes; those of a worker stay together where workers differ."""
    sync = config.sync_method
    if config.compression_method.kind == "none" and not sync.is_local and sync.kind != "async":
        return rank_micro_batches(config.num_micro_batches, rank, processes)
    hosted, micros = find_hosted_workers(config, rank, processes), config.grad_accumulation
    return range(hosted.start * micros, hosted.stop * micros)


def find_hosted_workers(config: TrainConfig, rank: int, processes: int) -> range:
    """Return the configured workers that a process hosts; refuse more processes than workers."""
    if processes > config.workers:
        raise EquipoiseError(
            "option-conflict",
            f"cannot share {pluralize(config.workers, 'worker')} among {processes} processes with --sync {config.sync}"
            f" and --compression {config.compression}: all micro-batches of a worker belong to one process",
            f"start no more processes than workers, or set --workers {processes}",
        )
    return rank_micro_batches(config.workers, rank, processes)


class MicroBatchOrder:
    """Micro-batches of a run with random access by step and index, fast where the next ones follow the last.

    The shuffled examples of one epoch after another form one sequence, cut into global batches
    and these into micro-batches. So nothing is dropped or padded at the end of an epoch, and
    the sequence is the same for any number of workers. With `shard_sizes`, the examples of a shard follow each other.
    """

    def __init__(
        self,
        seed: int,
        num_examples: int,
        batch_size: int,
        num_micro_batches: int,
        shard_sizes: Sequence[int] | None = None,
    ) -> None:
        self.seed, self.num_examples, self.shard_sizes = seed, num_examples, shard_sizes
        self.batch_size, self.num_micro_batches = batch_size, num_micro_batches
        self.first_micro_batch = self.first_step = 0  # from where the steps of this size are counted
        self.last_order: tuple[int, ExampleOrder] | None = None  # with its epoch

    def select(self, step: int, micro_index: int) -> MicroBatch:
        """Return a micro-batch of the step after `step` others."""
        start = (self.first_micro_batch + step * self.num_micro_batches + micro_index) * self.batch_size
        epoch, offset = divmod(start, self.num_examples)
        examples = self._find_order(epoch).take(offset, self.batch_size)
        epochs = np.empty(self.batch_size, np.int64)
        epochs.fill(epoch)  # np.full takes five times as long
        while (missing := self.batch_size - len(examples)) > 0:
            epochs[len(examples) :] += 1
            epoch += 1
            examples = np.concatenate([examples, self._find_order(epoch).take(0, missing)])
        return MicroBatch(step, micro_index, epochs, examples)

    @property
    def global_batch(self) -> int:
        """Number of examples of a step."""
        return self.num_micro_batches * self.batch_size

    def seen_before(self, step: int) -> int:
        """Return the number of examples in the `step` steps before a step."""
        return (self.first_micro_batch + step * self.num_micro_batches) * self.batch_size

    def resize_steps(self, num_micro_batches: int, seen: int, step: int, first_step: int) -> None:
        """Give the steps from `first_step` on another number of micro-batches; after `step` steps `seen` are seen."""
        self.num_micro_batches, self.first_step = num_micro_batches, first_step
        self.first_micro_batch = seen // self.batch_size - step * num_micro_batches

    def iterate(self, micro_indices: range, step: int) -> Iterator[MicroBatch]:
        """Yield the micro-batches in `micro_indices` from `step` on, without end."""
        for later_step in itertools.count(step):
            for micro_index in micro_indices:
                yield self.select(later_step, micro_index)

    def _find_order(self, epoch: int) -> ExampleOrder:
        """Return the order of the examples in an epoch, kept until another is asked for."""
        if self.last_order is None or self.last_order[0] != epoch:
            self.last_order = epoch, example_order(self.seed, epoch, self.num_examples, self.shard_sizes)
        return self.last_order[1]


def iterate_micro_batches(
    seed: int,
    num_examples: int,
    batch_size: int,
    num_micro_batches: int,
    micro_indices: range,
    step: int,
    shard_sizes: Sequence[int] | None = None,
) -> Iterator[MicroBatch]:
    """Yield micro-batches from `step` on, without end, for the worker that computes those in `micro_indices`."""
    return MicroBatchOrder(seed, num_examples, batch_size, num_micro_batches, shard_sizes).iterate(micro_indices, step)


def group_micro_batches(
    micros: Iterator[MicroBatch], group_size: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the epochs and examples of `group_size` micro-batches at a time."""
    while group := list(islice(micros, group_size)):
        yield np.concatenate([micro.epochs for micro in group]), np.concatenate([micro.examples for micro in group])


class _BatchDataset(Dataset[tuple[Batch, Batch] | EquipoiseError]):
    """Dataset whose items are whole batches, so that the worker processes of a DataLoader read them in parallel."""

    def __init__(self, split: Split) -> None:
        self.split = split

    def __getitem__(self, examples: NDArray[np.int64]) -> tuple[Batch, Batch] | EquipoiseError:
        try:
            return self.split.read_examples(examples)
        except EquipoiseError as error:  # returned, since DataLoader would raise it as a RuntimeError
            return error


def keep_structure(batch: Batch) -> Batch:
    """Return a batch as it is, instead of DataLoader's conversion of tuples to lists."""
    return batch


def read_batches(
    split: Split, index_arrays: Iterable[NDArray[np.int64]], num_readers: int
) -> Iterator[tuple[Batch, Batch]]:
    """Yield inputs and targets of each index array: taken from memory, or read ahead by `num_readers` processes."""
    if not split.is_in_memory:
        # with batch_size None each value of the sampler is one index, which here stands for a whole batch
        loader = DataLoader(
            _BatchDataset(split),
            sampler=index_arrays,
            batch_size=None,
            num_workers=num_readers,
            prefetch_factor=BATCHES_AHEAD if num_readers else None,
            collate_fn=keep_structure,
        )
        for batch in loader:
            if isinstance(batch, EquipoiseError):
                raise batch
            yield batch
        return
    for examples in index_arrays:
        indices = torch.from_numpy(examples)
        yield select_examples(split.inputs, indices), select_examples(split.targets, indices)
