"""Sum gradients over workers in fewer bytes, after the backward pass and from the main thread.

What bf16, int8 and topk send depends on each worker's own gradient. So a process that computes for several configured
workers encodes the gradient of each by itself when its last micro-batch is done, and takes the steps of as many
processes. PowerSGD is linear: a process encodes the sum of its workers' gradients.

What the workers of a process have left out is in the part of a checkpoint that this process writes. A resumed run takes
the steps of an uninterrupted one to the bit: with bf16, int8 and topk on any number of processes, with PowerSGD on the
same number. On another the processes share what was left out of PowerSGD's products: the same steps up to rounding.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce

import torch
import torch.distributed as dist
from torch import Tensor, nn

from equipoise.compression.encoded_sum import EncodedSum
from equipoise.compression.kept_errors import has_errors
from equipoise.compression.worker_layout import WorkerLayout, exchange_chunks
from equipoise.config import TrainConfig
from equipoise.registries.all_reduce_registry import AppliedAllReduce
from equipoise.training.gradient_norms import GradientNorms
from equipoise.training.gradient_sync import GradientAllReduce, SumTraffic
from equipoise.training.step_timer import SpanTimer, TimeMark

NamedParameters = Mapping[str, nn.Parameter]


class CompressedSync(GradientAllReduce):
    """Sum of compressed gradients, in place of `GradientAllReduce`; a step's sum is done when its last micro-batch is.

    The timer gets spans named `encode` for what compression costs, and `exchange` for the waits for other workers.
    """

    def __init__(self, config: TrainConfig, layout: WorkerLayout, timer: SpanTimer) -> None:
        super().__init__([], layout.processes)
        self.micro_batches_per_worker = config.grad_accumulation
        self.layout, self.timer = layout, timer
        self.mark: TimeMark = 0.0

    def begin_last_micro_batch(self, gradient_norms: GradientNorms | None) -> None:
        """Do nothing: what several workers send is not the gradient that a noise scale could be told from."""

    def launch_remaining(self) -> None:
        """Do nothing: `end_micro_batch` has summed the gradients."""

    def end_micro_batch(self, micro_index: int) -> bool:
        """Encode a worker's gradient after its last micro-batch, and sum after that of the last worker here."""
        worker, micro = divmod(micro_index, self.micro_batches_per_worker)
        if micro < self.micro_batches_per_worker - 1:
            return False
        self.mark = self.timer.mark()
        self._finish_worker(worker - self.layout.hosted.start, is_last=worker == self.layout.hosted[-1])
        self.timer.record_span("encode", self.mark)
        return True

    def _finish_worker(self, index: int, is_last: bool) -> None:
        raise NotImplementedError

    def _exchange(self, run: Callable[[], object]) -> None:
        """Time an exchange by itself."""
        self.mark = self.timer.record_span("encode", self.mark)
        run()
        self.mark = self.timer.record_span("exchange", self.mark)

    def list_errors(self) -> dict[str, Tensor]:
        """Return what this process keeps of what was left out, by the names of `kept_errors`."""
        raise NotImplementedError

    def load_errors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take what `list_errors` returned in the processes of a checkpoint; start anew without any."""
        raise NotImplementedError


class EncodedSync(CompressedSync):
    """Sum of the gradients of configured workers, each encoded by itself."""

    def __init__(
        self,
        config: TrainConfig,
        parameters: NamedParameters,
        layout: WorkerLayout,
        timer: SpanTimer,
        build_sum: Callable[[WorkerLayout, Tensor, bool], EncodedSum],
    ) -> None:
        super().__init__(config, layout, timer)
        self.parameters = parameters
        like = next(iter(parameters.values()))
        dtype = common_dtype(parameters.values())
        self.flat_gradients = like.new_zeros(sum(p.numel() for p in parameters.values()), dtype=dtype)
        self.views = self._split(self.flat_gradients)
        self.encoded_sum = build_sum(layout, self.flat_gradients, config.error_feedback)
        self.totals = self._split(self.encoded_sum.total)
        sent = torch.tensor(self.encoded_sum.count_sent_bytes() if self.workers > 1 else 0, device=like.device)
        if self.workers > 1:
            dist.all_reduce(sent, dist.ReduceOp.MAX)
        self.traffic = SumTraffic(int(sent), self.encoded_sum.num_rounds if self.workers > 1 else 0)

    def _split(self, flat: Tensor) -> list[Tensor]:
        """Return views of flat numbers, with the shapes and memory layouts of the parameters."""
        pieces = flat.split([parameter.numel() for parameter in self.parameters.values()])
        return [
            piece.as_strided(p.shape, p.stride(), piece.storage_offset())
            for piece, p in zip(pieces, self.parameters.values(), strict=True)
        ]

    def set_algorithms(self, algorithms: Sequence[AppliedAllReduce]) -> None:
        """Do nothing: what is encoded has an exchange of its own."""

    def _finish_worker(self, index: int, is_last: bool) -> None:
        for parameter, view in zip(self.parameters.values(), self.views, strict=True):
            view.zero_() if parameter.grad is None else view.copy_(parameter.grad)
            parameter.grad = None
        self.encoded_sum.encode_worker(index, self.flat_gradients)
        if is_last:
            self.encoded_sum.sum_over_workers(self._exchange_chunks)
            for parameter, total in zip(self.parameters.values(), self.totals, strict=True):
                parameter.grad = total.to(parameter.dtype)

    def _exchange_chunks(self, chunks: Sequence[Tensor], received_sizes: Sequence[int]) -> list[Tensor]:
        received: list[Tensor] = []
        self._exchange(lambda: received.extend(exchange_chunks(chunks, received_sizes)))
        return received

    def list_errors(self) -> dict[str, Tensor]:
        """Return what this process keeps of what was left out, in the flat gradient, by the names of `kept_errors`."""
        return self.encoded_sum.list_errors()

    def load_errors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take what `list_errors` returned in the processes of a checkpoint; start anew without any."""
        if has_errors(tensors):
            self.encoded_sum.load_errors(tensors)


def common_dtype(tensors: Iterable[Tensor]) -> torch.dtype:
    """Return the dtype in which sums of gradients are computed: fp64 if one of them has it, else fp32."""
    return reduce(torch.promote_types, (tensor.dtype for tensor in tensors), torch.float32)
