"""Loop over tensors in memory, as somebody writes it by hand: with DDP where there are several workers."""

import time
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from benchmarks.hand_written_loop import iterate_batches
from benchmarks.timing import read_world_size
from benchmarks.training_case import LR, MOMENTUM, TrainingCase, build_model, compute_scale, get_examples


class ScaledClassifier(nn.Module):
    """The benchmark's model from uint8 images to its loss, as trainers of other libraries take it."""

    def __init__(self, workload: Any) -> None:
        super().__init__()
        self.model, (self.gain, self.offset) = build_model(workload), compute_scale(workload)

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return loss and scores."""
        scores = self.model(inputs.float().mul_(self.gain).add_(self.offset))
        return {"loss": F.cross_entropy(scores, labels), "logits": scores}


class StepMarks(NamedTuple):
    """Moments of a step: its start, its batch is there, its last gradient, its backward pass returns, its end."""

    start: float
    loaded: float
    gradient: float
    backward: float
    end: float


class HandWrittenLoop:
    """Loop over tensors in memory, with DDP where there are several workers, and its own marks of time."""

    def __init__(self, case: TrainingCase) -> None:
        self.case, workload = case, case.load_workload()
        network: nn.Module = ScaledClassifier(workload)
        is_alone = read_world_size() == 1
        self.network = network if is_alone else DistributedDataParallel(network, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.SGD(network.parameters(), lr=LR, momentum=MOMENTUM)
        self.images, self.labels = get_examples(workload)
        self.batches = iterate_batches(len(self.labels), case.batch, torch.device("cpu"))
        self.marks: list[StepMarks] = []
        self.last_gradient = 0.0

    def load_batch(self) -> tuple[Tensor, Tensor]:
        """Return the next batch of this worker."""
        indices = next(self.batches)
        return self.images[indices], self.labels[indices]

    def take_steps(self, count: int) -> None:
        """Take steps, with a mark of time where a batch is there and where a step ends."""
        end = time.perf_counter()
        for _ in range(count):
            start = end
            inputs, labels = self.load_batch()
            self.optimizer.zero_grad()
            loaded = time.perf_counter()
            self.network(inputs, labels)["loss"].backward()
            backward = time.perf_counter()
            self.optimizer.step()
            end = time.perf_counter()
            self.marks.append(StepMarks(start, loaded, self.last_gradient, backward, end))

    def mark_gradient(self, _: Tensor) -> None:
        """Note when the latest gradient of this worker was computed."""
        self.last_gradient = time.perf_counter()
