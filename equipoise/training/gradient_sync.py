"""Average gradients over workers while backward still runs.

Gradients fill flat buckets in the order in which backward yields them; a full bucket is
summed over workers in the background. Buckets never change, so the sums of a resumed
run equal those of an uninterrupted one to the bit, on any number of workers (DDP rebuilds
its buckets after its first step). The two squared norms for the noise scale are taken
here, because a worker's own gradient exists nowhere else.

A bucket may be summed by an algorithm of equipoise.parallel (`--all-reduce`), which is only imported then.

Why by hand: docs/decisions/0001-gradient-all-reduce.md.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from equipoise.planning.exchanges.exchange_time import all_reduce_cost
from equipoise.registries.all_reduce_registry import AllReduceName, AppliedAllReduce
from equipoise.training.gradient_norms import GradientNorms

if TYPE_CHECKING:
    from equipoise.parallel.background import PendingSum
    from equipoise.parallel.scheduled_sum import ScheduledSum

FIRST_BUCKET_BYTES, BUCKET_BYTES = 1 << 20, 25 << 20  # a small first bucket starts the exchange early; DDP's sizes
MAX_ALL_TO_ALL_BYTES = 1 << 18  # over all workers; above it a ring of small messages is faster than one all-to-all


class SumTraffic(NamedTuple):
    """What one worker sends to sum gradients over workers."""

    sent_bytes: int = 0
    """bytes that leave the worker"""
    rounds: int = 0
    """messages that wait for each other"""


class GradientBucket:
    """Flat tensor that holds the gradients of several parameters."""

    def __init__(self, parameters: list[nn.Parameter], workers: int, group: dist.ProcessGroup | None = None) -> None:
        self.parameters, self.group = parameters, group
        self.flat_gradients = parameters[0].new_zeros(sum(p.numel() for p in parameters))
        small = uses_all_to_all(self.flat_gradients.nbytes, workers, self.flat_gradients.device)
        self.received_rows = self.flat_gradients.new_zeros(workers, len(self.flat_gradients)) if small else None
        pieces = self.flat_gradients.split([p.numel() for p in parameters])
        # same memory layout as the parameter, because fused optimizers walk both in memory order
        self.gradient_views = [
            piece.as_strided(p.shape, p.stride()) for piece, p in zip(pieces, parameters, strict=True)
        ]
        self.num_missing = len(parameters)
        self.scheduled_sum: ScheduledSum | None = None
        """sum by an algorithm of --all-reduce; None where that of the process group sums"""

    def copy_gradient(self, index: int) -> None:
        """Copy a gradient in as it arrives: keeping it until the bucket is full costs page faults, 8 % on ResNet-18."""
        parameter, view = self.parameters[index], self.gradient_views[index]
        parameter.grad = view.zero_() if parameter.grad is None else view.copy_(parameter.grad)
        self.num_missing -= 1

    def start_exchange(self) -> "dist.Work | PendingSum":
        """Start to sum over workers; small buckets by one all-to-all, as gloo's ring spends its time on wake-ups."""
        if self.scheduled_sum is not None:
            return self.scheduled_sum.start()
        if self.received_rows is None:
            return dist.all_reduce(self.flat_gradients, group=self.group, async_op=True)
        copies = self.flat_gradients.repeat(len(self.received_rows))
        received = self.received_rows.view(-1)
        return dist.all_to_all_single(received, copies, group=self.group, async_op=True)  # type: ignore[return-value]  # async

    def sum_received_rows(self) -> None:
        """Sum the received rows in the order of ranks, so that every worker gets the same bits."""
        if self.received_rows is not None and self.scheduled_sum is None:
            torch.sum(self.received_rows, 0, out=self.flat_gradients)

    def count_traffic(self, workers: int) -> SumTraffic:
        """Return what this worker sends to sum the bucket; by the closed form where the process group sums."""
        if self.scheduled_sum is not None:
            return SumTraffic(self.scheduled_sum.sent_bytes, self.scheduled_sum.num_rounds)
        algorithm = "ring" if self.received_rows is None else "direct"
        cost = all_reduce_cost(algorithm, workers, self.flat_gradients.nbytes)
        return SumTraffic(round(cost.max_sent_bytes), cost.rounds)

    def fill_missing(self) -> None:
        """Copy in gradients without a part in the last micro-step: zero, or the sum of earlier micro-steps."""
        views, gradients = [], []
        for parameter, view in zip(self.parameters, self.gradient_views, strict=True):
            if parameter.grad is None:
                parameter.grad = view.zero_()
            elif parameter.grad is not view:
                views.append(view)
                gradients.append(parameter.grad)
                parameter.grad = view
        if views:
            torch._foreach_copy_(views, gradients)


class GradientAllReduce:
    """Sum of the gradients of all workers, overlapped with the backward pass of the last micro-batch.

    Call `begin_last_micro_batch` before that backward pass, `launch_remaining` and `wait_for_sums` after it.
    With one worker it only keeps large gradients in place. If each worker divides its loss by the size of the
    global batch, all workers end up with the mean gradient.
    """

    updates_weights = False
    """whether the model has its new weights after the wait, so that the worker's own optimizer takes no step"""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        workers: int,
        all_reduce: AllReduceName = "backend",
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """Sum over `workers`: those of a process group of torch, or all where there is none."""
        self.workers = workers
        # one worker keeps large gradients too: allocating them at each step takes 3 % of ResNet-18's time
        uses_buckets = workers > 1 or has_large_gradients(parameters)
        backward_order = parameters[::-1] if uses_buckets else []  # the last layer's gradient comes first
        self.buckets = [GradientBucket(part, workers, group) for part in assign_buckets(backward_order)]
        self.pending_works: list[dist.Work | PendingSum] = []
        self.is_last_micro_batch = False
        self.gradient_norms: GradientNorms | None = None
        self.algorithms: tuple[AppliedAllReduce, ...] = ()
        """algorithm of each bucket; none with one worker, and before `auto` has chosen"""
        self.traffic = SumTraffic()
        """bytes in a step of the worker that sends most, and rounds"""
        if workers > 1 and all_reduce != "auto":
            self.set_algorithms([all_reduce] * len(self.buckets))
        if len(self.buckets) > 1 or workers == 1:  # a single bucket is only full when backward ends
            for bucket in self.buckets:
                for index, parameter in enumerate(bucket.parameters):
                    parameter.register_post_accumulate_grad_hook(self._gradient_hook(bucket, index))

    def set_algorithms(self, algorithms: Sequence[AppliedAllReduce]) -> None:
        """Sum each bucket by its algorithm from now on; all workers call this with the same names."""
        is_scheduled = any(name != "backend" for name in algorithms)
        sums: Sequence[ScheduledSum | None] = [None] * len(self.buckets)
        if is_scheduled:
            from equipoise.parallel.bucket_sums import build_bucket_sums

            sums = build_bucket_sums([bucket.flat_gradients for bucket in self.buckets], algorithms)
        for bucket, scheduled_sum in zip(self.buckets, sums, strict=True):
            bucket.scheduled_sum = scheduled_sum
        self.algorithms = tuple(algorithms)
        traffic = [bucket.count_traffic(self.workers) for bucket in self.buckets]
        self.traffic = SumTraffic(*map(sum, zip(*traffic, strict=True)))
        if is_scheduled:  # workers may send unequal numbers of bytes
            largest = torch.tensor(self.traffic.sent_bytes, device=self.buckets[0].flat_gradients.device)
            dist.all_reduce(largest, dist.ReduceOp.MAX)
            self.traffic = self.traffic._replace(sent_bytes=int(largest))

    def begin_last_micro_batch(self, gradient_norms: GradientNorms | None) -> None:
        """Treat gradients from now on as the last ones of the step; `gradient_norms` receives their norms."""
        self.is_last_micro_batch = True
        self.gradient_norms = gradient_norms
        for bucket in self.buckets:
            bucket.num_missing = len(bucket.parameters)

    def end_micro_batch(self, micro_index: int) -> bool:
        """Return whether gradients were encoded after a micro-batch, in spans of their own; exact sums have none."""
        return False

    def launch_remaining(self) -> None:
        """Launch the buckets that backward has not launched; other work fits in before `wait_for_sums`."""
        self.is_last_micro_batch = False
        if self.workers > 1:
            self._launch_until(len(self.buckets))
        else:
            for bucket in self.buckets:
                bucket.fill_missing()

    def wait_for_sums(self) -> None:
        """Wait until every parameter's gradient is the sum over workers."""
        if not self.pending_works:
            return  # one worker
        for bucket, work in zip(self.buckets, self.pending_works, strict=True):
            work.wait()
            bucket.sum_received_rows()
            if self.gradient_norms:
                self.gradient_norms.total_norms.append(torch.dot(bucket.flat_gradients, bucket.flat_gradients))
        self.pending_works.clear()
        if self.gradient_norms:
            self.gradient_norms.num_draws += 1

    def clip_gradients(self, parameters: Sequence[nn.Parameter], max_norm: float) -> None:
        """Scale the summed gradient down to a norm where it is larger."""
        nn.utils.clip_grad_norm_(parameters, max_norm)

    def state_dict(self) -> dict[str, Tensor]:
        """Return what the next sum of all processes depends on besides the gradients: nothing, as it is exact."""
        return {}

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state from the tensors of `state_dict`; start anew without any."""

    def list_errors(self) -> dict[str, Tensor]:
        """Return what only this process keeps for the next sum: nothing, as exact sums leave nothing out."""
        return {}

    def load_errors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take what `list_errors` returned in the processes of a checkpoint."""

    def _gradient_hook(self, bucket: GradientBucket, index: int) -> Callable[[Tensor], None]:
        # a parameter that holds its own bucket by a hook would never be freed: torch keeps hooks where gc cannot look
        sync_reference, bucket_reference = weakref.ref(self), weakref.ref(bucket)

        def on_gradient(_: Tensor) -> None:
            sync, own_bucket = sync_reference(), bucket_reference()
            if sync is not None and own_bucket is not None and sync.is_last_micro_batch:
                own_bucket.copy_gradient(index)
                if not own_bucket.num_missing and sync.workers > 1:
                    sync._launch_ready()

        return on_gradient

    def _launch_ready(self) -> None:
        ready = len(self.pending_works)
        while ready < len(self.buckets) and not self.buckets[ready].num_missing:
            ready += 1
        self._launch_until(ready)

    def _launch_until(self, end: int) -> None:
        """Launch the buckets before `end` in order, because all workers must sum the same bucket at a time."""
        for bucket in self.buckets[len(self.pending_works) : end]:
            if bucket.num_missing:
                bucket.fill_missing()
            if self.gradient_norms:
                self.gradient_norms.local_norms.append(torch.dot(bucket.flat_gradients, bucket.flat_gradients))
            self.pending_works.append(bucket.start_exchange())


def uses_all_to_all(size_bytes: int, workers: int, device: torch.device) -> bool:
    """Return whether a sum of `size_bytes` per worker goes by one all-to-all instead of around a ring."""
    return size_bytes * workers <= MAX_ALL_TO_ALL_BYTES and device.type == "cpu"


def has_large_gradients(parameters: Sequence[nn.Parameter]) -> bool:
    """Return whether gradients on a CPU are so large that the allocator returns their memory after each step."""
    return sum(p.nbytes for p in parameters if p.device.type == "cpu") > FIRST_BUCKET_BYTES


def assign_buckets(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Split the parameters, in order, into buckets of one dtype and limited size."""
    groups: list[list[nn.Parameter]] = []
    room = 0
    for parameter in parameters:
        size = parameter.numel() * parameter.element_size()
        if not groups or size > room or parameter.dtype != groups[-1][0].dtype:
            groups.append([])
            room = BUCKET_BYTES if len(groups) > 1 else FIRST_BUCKET_BYTES
        groups[-1].append(parameter)
        room -= size
    return groups
