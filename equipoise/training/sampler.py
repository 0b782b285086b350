"""Which examples a worker sees, and when."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from equipoise import rng as keys
from equipoise.workloads import Split


class MicroBatch(NamedTuple):
    """One micro-batch by its examples. The epoch is of each example: a batch may span two."""

    step: int
    place: int
    epochs: NDArray[np.int64]
    examples: NDArray[np.int64]


def share(places: int, rank: int, workers: int) -> range:
    """The places of the global batch that fall to a worker: a run of them, as equal as they go."""
    if workers > places:
        raise ValueError(f"{workers} workers cannot share {places} micro-batches: start at most {places}")
    return range(rank * places // workers, (rank + 1) * places // workers)


def micro_batches(seed: int, examples: int, batch: int, places: int, mine: range, step: int) -> Iterator[MicroBatch]:
    """Micro-batches from `step` on, without end, for the worker that computes the places `mine`.

    Epoch after epoch of shuffled examples are one long line, cut into global batches and
    these into places. So nothing is dropped or padded at an epoch's end, and the line is
    the same for any number of workers.
    """
    epoch, line = -1, np.empty(0, np.int64)
    while True:
        for place in mine:
            start = (step * places + place) * batch
            first, offset = divmod(start, examples)
            if first != epoch:
                epoch, line = first, keys.order(seed, first, examples)
            picked = line[offset : offset + batch]
            epochs = np.empty(batch, np.int64)
            epochs.fill(epoch)  # np.full takes five times as long
            while (missing := batch - len(picked)) > 0:
                epochs[len(picked) :] += 1
                epoch, line = epoch + 1, keys.order(seed, epoch + 1, examples)
                picked = np.concatenate([picked, line[:missing]])
            yield MicroBatch(step, place, epochs, picked)
        step += 1


def together(micros: Iterator[MicroBatch], count: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Epochs and examples of `count` micro-batches at a time."""
    while group := list(islice(micros, count)):
        yield np.concatenate([micro.epochs for micro in group]), np.concatenate([micro.examples for micro in group])


class _Batches(Dataset[tuple[Tensor, Tensor]]):
    """A split asked for whole batches, so that a loader's workers decode them side by side."""

    def __init__(self, split: Split) -> None:
        self.split = split

    def __getitem__(self, examples: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        pictures = [self.split.pictures[int(i)] for i in examples]
        return torch.stack(pictures), self.split.labels[torch.from_numpy(examples)]


def read(split: Split, wanted: Iterable[NDArray[np.int64]], readers: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Pictures and labels of each index array in turn: indexed in memory, or decoded ahead by `readers` processes."""
    if not isinstance(split.pictures, Tensor):
        # batch_size None: what the sampler yields is one index, and here that is a whole batch
        yield from DataLoader(_Batches(split), sampler=wanted, batch_size=None, num_workers=readers)
        return
    for examples in wanted:
        chosen = torch.from_numpy(examples).to(split.labels.device)
        yield split.pictures.index_select(0, chosen), split.labels.index_select(0, chosen)
