"""Weights in flat tensors, one for each worker that updates them, so that a message takes all of its part."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from equipoise.parallel.peer_messages import exchange_with_peers
from equipoise.training.step_timer import SpanTimer

ALIGNED_BYTES = 64  # a line of a CPU's cache, and enough for vector loads


class SharedWeights:
    """Weights of a model, of which each worker updates its own and receives those of the others."""

    def __init__(self, parameters_by_owner: Sequence[Sequence[nn.Parameter]]) -> None:
        """Move the weights of each owner into flat tensors, one of each dtype; parameters keep their identity."""
        dtypes = {parameter.dtype: parameter for parameters in parameters_by_owner for parameter in parameters}
        self.flats_by_dtype = [
            [
                move_to_flat([parameter for parameter in parameters if parameter.dtype == dtype], like)
                for parameters in parameters_by_owner
            ]
            for dtype, like in sorted(dtypes.items(), key=lambda item: str(item[0]))
        ]
        """flat tensor of each owner, which has no elements where it has no weights"""
        self.timer: SpanTimer | None = None
        """timer of the steps, whose updates send weights"""

    def list_part_bytes(self, workers: int) -> list[int]:
        """Return the bytes that each worker sends."""
        return [sum(flats[rank].nbytes for flats in self.flats_by_dtype) for rank in range(workers)]

    def exchange(self) -> None:
        """Send this worker's weights to all others, and receive theirs."""
        mark = self.timer.mark() if self.timer else 0.0
        for flats in self.flats_by_dtype:
            exchange_with_peers([flats[dist.get_rank()]] * len(flats), flats)
        if self.timer:
            self.timer.record_inner_span("exchange", "compute", mark)


@torch.no_grad()
def move_to_flat(parameters: Sequence[nn.Parameter], like: Tensor) -> Tensor:
    """Return a flat tensor that holds these weights from now on, each with its memory layout; all are of one dtype."""
    unit = ALIGNED_BYTES // like.element_size()
    sizes = [-(-parameter.numel() // unit) * unit for parameter in parameters]
    flat = like.new_zeros(sum(sizes))
    for parameter, piece in zip(parameters, flat.split(sizes), strict=True):
        view = piece[: parameter.numel()].as_strided(parameter.shape, parameter.stride())
        parameter.data = view.copy_(parameter)
    return flat
