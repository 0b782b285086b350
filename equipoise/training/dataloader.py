"""Pictures as the model takes them: on its device, in its type, scaled, and augmented if they are for training."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, tee

import torch
from torch import Tensor

from equipoise.config import Trial
from equipoise.training import sampler as stream
from equipoise.workloads import Split, Workload

DTYPES = {"fp32": torch.float32, "bf16": torch.float32, "fp64": torch.float64}  # of weights and sums
EVALUATION_BATCH = 256
AHEAD_BYTES = 1 << 20  # made at a time: what fits a processor's cache


class Feed:
    """The images and labels of one worker."""

    def __init__(self, trial: Trial, workload: Workload, device: torch.device) -> None:
        self.trial = trial
        self.device = device
        self.train = on_device(workload.train, device)
        self.augment = workload.augment if trial.augment else None
        mean, std = (
            torch.tensor(values, dtype=torch.float64).view(-1, 1, 1) for values in (workload.mean, workload.std)
        )
        self.gain = (1 / (255 * std)).to(device, DTYPES[trial.precision])
        self.offset = (-mean / std).to(device, DTYPES[trial.precision])

    def training(self, places: range, step: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Augmented images and labels of `places`, micro-batch by micro-batch from `step` on, without end.

        Those of several steps are made at once if they are small: the calls cost more than the work. Which
        ones does not depend on `step`, so that a resumed run computes what the undisturbed one did.
        """
        trial, steps = self.trial, self._ahead(len(places))
        begun = step % steps
        micros = stream.micro_batches(trial.seed, len(self.train), trial.batch, trial.places, places, step - begun)
        made = self._made(micros, steps * len(places))
        return islice(made, begun * len(places), None)

    def _ahead(self, places: int) -> int:
        """Steps whose examples are made at a time."""
        pictures = self.train.pictures
        if not isinstance(pictures, Tensor):
            return 1
        one = pictures[0].numel() * self.gain.element_size()
        return max(1, AHEAD_BYTES // (one * self.trial.batch * places))

    def _made(self, micros: Iterator[stream.MicroBatch], count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and labels of each micro-batch, `count` of them made at a time."""
        trial = self.trial
        wanted, ahead = tee(stream.together(micros, count))
        read = stream.read(self.train, (examples for _, examples in ahead), trial.threads)
        for (epochs, examples), (pictures, labels) in zip(wanted, read, strict=True):
            pictures, labels = self._moved(pictures, labels)
            if self.augment:
                pictures = self.augment(pictures, trial.seed, epochs, examples)
            yield from zip(self.scaled(pictures).split(trial.batch), labels.split(trial.batch), strict=True)

    def once(self, split: Split, rank: int, workers: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and labels of a split as they are: every batch that falls to worker `rank`."""
        batches = torch.arange(len(split)).split(EVALUATION_BATCH)[rank::workers]
        for pictures, labels in stream.read(split, (batch.numpy() for batch in batches), self.trial.threads):
            pictures, labels = self._moved(pictures, labels)
            yield self.scaled(pictures), labels

    def scaled(self, pictures: Tensor) -> Tensor:
        """(uint8 / 255 - mean) / std, in the layout asked for."""
        images = pictures.to(self.gain.dtype).mul_(self.gain).add_(self.offset)
        return images.contiguous(memory_format=torch.channels_last) if self.trial.channels_last else images

    def _moved(self, pictures: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        if pictures.device == self.device:
            return pictures, labels
        return pictures.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)


def on_device(split: Split, device: torch.device) -> Split:
    """The split where its pictures are needed, if they are in memory at all."""
    if not isinstance(split.pictures, Tensor):
        return split
    return replace(split, pictures=split.pictures.to(device), labels=split.labels.to(device))
