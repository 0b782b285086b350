"""Metrics of a pipeline's outputs, which only its last stage has."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from equipoise.training.sharding.pipeline.stage_groups import list_workers
from equipoise.training.sharding.pipeline.stage_links import ReceivingLink, SendingLink
from equipoise.training.sharding.pipeline.tensor_layout import MAX_DIMS
from equipoise.workloads.batch import Batch, count_examples, list_tensors

if TYPE_CHECKING:
    from equipoise.training.sharding.pipeline.pipeline_sharding import PipelineSharding


class StageEvaluation:
    """Forward passes of batches of any size, each of which follows the last one through the stages."""

    def __init__(self, sharding: "PipelineSharding") -> None:
        self.sharding, mesh, group = sharding, sharding.mesh, sharding.groups.values
        self.source = ReceivingLink(mesh.rank - 1, group, sharding.device) if sharding.upstream else None
        self.target = SendingLink(mesh.rank + 1, group) if sharding.downstream else None
        self.row_shape: tuple[int, ...] | None = None
        self.example_bytes = 0
        """of the outputs of an example"""

    def compute_rows(
        self, inputs: Batch, targets: Batch, metric: Callable[[Batch, Batch], Tensor]
    ) -> tuple[Tensor, Batch]:
        """Return the metric's rows and the outputs on the last stage; on others rows of zeros, and outputs of a size.

        The first batch tells all stages the shape of a row and the size of the outputs.
        """
        outputs = self._run_forward(inputs)
        count = count_examples(targets)
        rows = metric(outputs, targets) if self.target is None else None
        if self.row_shape is None:
            self.row_shape = self._share_sizes(rows, outputs, count)
        if rows is not None:
            return rows, outputs
        size = torch.empty(self.example_bytes * count, dtype=torch.uint8, device="meta")
        return torch.zeros(count, *self.row_shape, device=self.sharding.device), size

    def _run_forward(self, inputs: Batch) -> Batch:
        received = None
        if self.source:
            self.source.expect_layout()
            received = self.source.receive_with_layout()
        outputs = self.sharding.call_stage(received, inputs)
        if self.target:
            self.target.finish()  # of the batch before
            self.target.send_with_layout(0, outputs)
        return outputs

    def _share_sizes(self, rows: Tensor | None, outputs: Batch, count: int) -> tuple[int, ...]:
        """Return the shape of a row on all stages, which then know the size of the outputs too."""
        numbers = torch.zeros(2 + MAX_DIMS, dtype=torch.int64)
        if rows is not None:
            numbers[0] = sum(tensor.nbytes for tensor in list_tensors(outputs)) // count
            numbers[1] = rows.ndim - 1
            numbers[2 : 1 + rows.ndim] = torch.tensor(rows.shape[1:], dtype=torch.int64)
        mesh, shared = self.sharding.mesh, numbers.to(self.sharding.device)
        dist.broadcast(
            shared, list_workers(mesh, mesh.replica, [mesh.num_parts - 1])[0], group=self.sharding.groups.values
        )
        self.example_bytes, dims, *shape = (int(number) for number in shared.tolist())
        return tuple(shape[:dims])
