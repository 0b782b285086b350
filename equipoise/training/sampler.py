"""Which examples a worker sees, and when."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from equipoise.rng import epoch_permutation
from equipoise.workloads import Split


class MicroBatch(NamedTuple):
    """One micro-batch by its examples. The epoch is of each example: a batch may span two."""

    step: int
    micro_index: int
    epochs: NDArray[np.int64]
    examples: NDArray[np.int64]


def rank_micro_batches(num_micro_batches: int, rank: int, workers: int) -> range:
    """The places of the global batch that fall to a worker: a run of them, as equal as they go."""
    if workers > num_micro_batches:
        raise ValueError(
            f"{workers} workers cannot share {num_micro_batches} micro-batches: start at most {num_micro_batches}"
        )
    return range(rank * num_micro_batches // workers, (rank + 1) * num_micro_batches // workers)


def iterate_micro_batches(
    seed: int, num_examples: int, batch_size: int, num_micro_batches: int, micro_indices: range, step: int
) -> Iterator[MicroBatch]:
    """Micro-batches from `step` on, without end, for the worker that computes the places `mine`.

    Epoch after epoch of shuffled examples are one long line, cut into global batches and
    these into places. So nothing is dropped or padded at an epoch's end, and the line is
    the same for any number of workers.
    """
    epoch, line = -1, np.empty(0, np.int64)
    while True:
        for place in micro_indices:
            start = (step * num_micro_batches + place) * batch_size
            first, offset = divmod(start, num_examples)
            if first != epoch:
                epoch, line = first, epoch_permutation(seed, first, num_examples)
            picked = line[offset : offset + batch_size]
            epochs = np.empty(batch_size, np.int64)
            epochs.fill(epoch)  # np.full takes five times as long
            while (missing := batch_size - len(picked)) > 0:
                epochs[len(picked) :] += 1
                epoch, line = epoch + 1, epoch_permutation(seed, epoch + 1, num_examples)
                picked = np.concatenate([picked, line[:missing]])
            yield MicroBatch(step, place, epochs, picked)
        step += 1


def group_micro_batches(
    micros: Iterator[MicroBatch], group_size: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Epochs and examples of `count` micro-batches at a time."""
    while group := list(islice(micros, group_size)):
        yield np.concatenate([micro.epochs for micro in group]), np.concatenate([micro.examples for micro in group])


class _BatchDataset(Dataset[tuple[Tensor, Tensor]]):
    """A split asked for whole batches, so that a loader's workers decode them side by side."""

    def __init__(self, split: Split) -> None:
        self.split = split

    def __getitem__(self, examples: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        pictures = [self.split.pictures[int(i)] for i in examples]
        return torch.stack(pictures), self.split.labels[torch.from_numpy(examples)]


def read_batches(
    split: Split, index_arrays: Iterable[NDArray[np.int64]], num_readers: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Pictures and labels of each index array in turn: indexed in memory, or decoded ahead by `readers` processes."""
    if not isinstance(split.pictures, Tensor):
        # batch_size None: what the sampler yields is one index, and here that is a whole batch
        yield from DataLoader(_BatchDataset(split), sampler=index_arrays, batch_size=None, num_workers=num_readers)
        return
    for examples in index_arrays:
        chosen = torch.from_numpy(examples).to(split.labels.device)
        yield split.pictures.index_select(0, chosen), split.labels.index_select(0, chosen)
