"""Evaluation of a model on a split, by all workers together."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from equipoise.errors import EquipoiseError
from equipoise.training.dataloader import BatchLoader, InputsAndTargets
from equipoise.training.sharding.sharded_model import ShardedModel
from equipoise.workloads import Split, Workload
from equipoise.workloads.batch import Batch, count_examples, list_tensors
from equipoise.workloads.score import compute_score

MAX_EVAL_BATCH = 256  # examples
MAX_INPUT_BYTES = 1 << 25  # of a batch; 256 images of 512 pixels per side would take 800 MB, and two are held
MAX_OUTPUT_BYTES = 1 << 26  # of a batch; the outputs of 256 sequences over a large vocabulary would take gigabytes


class Evaluator:
    """Evaluator of a workload's metric; every worker takes some of the batches."""

    def __init__(self, workload: Workload, loader: BatchLoader, sharded: ShardedModel) -> None:
        self.workload, self.loader, self.sharded = workload, loader, sharded
        self.rank, self.workers = sharded.mesh.data_rank, sharded.mesh.data_workers
        self.batch_size = 0  # these two are known once the model has been run
        self.row_shape = torch.Size()

    def evaluate(
        self,
        split: Split,
        autocast: Callable[[], AbstractContextManager[object]],
        all_reduce_sum: Callable[[Tensor], Tensor],
    ) -> float:
        """Return the metric of the model in evaluation mode: the mean of its rows, or the workload's score of them."""
        if not self.batch_size:
            self._try_one_example(split)
        total, rows = torch.zeros((), dtype=torch.float64, device=self.loader.device), []
        with torch.no_grad():
            for (inputs, targets), is_own in self._iterate_batches(split):
                with autocast():
                    values, _ = self.sharded.compute_rows(inputs, targets, self.workload.metric)
                require_rows(values, count_examples(targets), self.row_shape)
                if not is_own:
                    continue
                if self.workload.score is None:
                    total += values.sum()
                else:
                    rows.append(values.double())
        if self.workload.score is None:
            return float(all_reduce_sum(total)) / len(split)
        return compute_score(self.workload.score, self._gather_rows(rows, len(split), all_reduce_sum).cpu())

    def _iterate_batches(self, split: Split) -> Iterator[tuple[InputsAndTargets, bool]]:
        """Yield the batches of this worker, and whether their rows count here.

        Workers that exchange weights for each batch repeat their last one, until all have had equal numbers.
        """
        num_batches = 0
        batch: InputsAndTargets | None = None
        for batch in self.loader.eval_batches(split, self.rank, self.workers, self.batch_size):
            num_batches += 1
            yield batch, self.sharded.mesh.counts_results
        if self.sharded.needs_equal_batches:
            most = math.ceil(math.ceil(len(split) / self.batch_size) / self.workers)
            for _ in range(most - num_batches):
                yield batch or next(self.loader.eval_batches(split, 0, 1, self.batch_size)), False

    def _try_one_example(self, split: Split) -> None:
        """Set the shape of a row, and the batch size: at most 256 examples, and not too many bytes."""
        inputs, targets = next(self.loader.eval_batches(split, 0, 1, 1))
        with torch.no_grad():
            rows, outputs = self.sharded.compute_rows(inputs, targets, self.workload.metric)
            self.row_shape = rows.shape[1:]
        limits = (
            limit // max(1, sum_tensor_bytes(batch))
            for batch, limit in ((inputs, MAX_INPUT_BYTES), (outputs, MAX_OUTPUT_BYTES))
        )
        self.batch_size = max(1, min(MAX_EVAL_BATCH, *limits))

    def _gather_rows(self, rows: list[Tensor], count: int, all_reduce_sum: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the rows of all workers in the order of the split; each adds its own to zeros, which is exact."""
        gathered = torch.zeros(count, *self.row_shape, dtype=torch.float64, device=self.loader.device)
        for index, values in enumerate(rows):
            start = (self.rank + index * self.workers) * self.batch_size
            gathered[start : start + len(values)] = values
        return all_reduce_sum(gathered)


def require_rows(values: Tensor, count: int, row_shape: torch.Size) -> None:
    """Refuse a metric that has not one row for each example: a mean of the rows would be wrong unseen."""
    if values.shape != (count, *row_shape):
        raise EquipoiseError(
            "workload-invalid",
            f"the workload's metric returned a tensor of {tuple(values.shape)} for {count} examples",
            f"it must be of {(count, *row_shape)}: one row for each example, whatever their number",
        )


def sum_tensor_bytes(batch: Batch) -> int:
    """Return the size of all tensors of a batch of inputs or outputs in bytes."""
    return sum(tensor.nbytes for tensor in list_tensors(batch))
