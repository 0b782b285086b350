"""Averages gradients over workers while backward still runs.

Gradients fill flat buckets in the order in which backward yields them; a full bucket is
summed over workers in the background. Buckets never change, so the sums of a resumed
run are the sums of the undisturbed one to the bit, on any number of workers (DDP lays
its buckets out anew after its first step). The two squared norms of the noise scale
are taken here because only here does a worker's own gradient exist.
"""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from equipoise.training.gradient_norms import GradientNorms

FIRST_BUCKET_BYTES, BUCKET_BYTES = 1 << 20, 25 << 20  # a small first bucket starts the exchange early; DDP's sizes
MAX_ALL_TO_ALL_BYTES = (
    1 << 18
)  # of all workers together; beyond it a ring of many small messages is faster than one round


class GradientBucket:
    """Some parameters' gradients, in one flat tensor."""

    def __init__(self, parameters: list[nn.Parameter], workers: int) -> None:
        self.parameters = parameters
        self.flat_gradients = parameters[0].new_zeros(sum(p.numel() for p in parameters))
        small = uses_all_to_all(self.flat_gradients.nbytes, workers, self.flat_gradients.device)
        self.received_rows = self.flat_gradients.new_zeros(workers, len(self.flat_gradients)) if small else None
        pieces = self.flat_gradients.split([p.numel() for p in parameters])
        # laid out as the parameter is: fused optimizers walk both in the order of memory
        self.gradient_views = [
            piece.as_strided(p.shape, p.stride()) for piece, p in zip(pieces, parameters, strict=True)
        ]
        self.num_missing = len(parameters)

    def copy_gradient(self, index: int) -> None:
        """Move a gradient in as it arrives: to hold it until the bucket is full costs page faults, 8 % on ResNet-18."""
        parameter, view = self.parameters[index], self.gradient_views[index]
        parameter.grad = view.zero_() if parameter.grad is None else view.copy_(parameter.grad)
        self.num_missing -= 1

    def start_exchange(self) -> dist.Work:
        """Begin to sum over workers. What is small goes to all at once: gloo's ring spends its time on waking up."""
        if self.received_rows is None:
            return dist.all_reduce(self.flat_gradients, async_op=True)
        copies = self.flat_gradients.repeat(len(self.received_rows))
        return dist.all_to_all_single(self.received_rows.view(-1), copies, async_op=True)  # type: ignore[return-value]  # async

    def sum_received_rows(self) -> None:
        """Sum the rows that came, in the order of ranks: every worker to the same bits."""
        if self.received_rows is not None:
            torch.sum(self.received_rows, 0, out=self.flat_gradients)

    def fill_missing(self) -> None:
        """Move in what took no part in the last micro-step: zero, or what earlier micro-steps summed."""
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
    """Sums the gradients of all workers: `arm` before the last micro-step's backward, `start` and `finish` after it.

    With one worker it only keeps large gradients in place. Workers whose loss is already divided by the size
    of the global batch end up with its mean gradient.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], workers: int) -> None:
        self.workers = workers
        # alone, a large model's gradients are kept too: memory asked for anew each step is 3 % of ResNet-18's time
        kept = workers > 1 or has_large_gradients(parameters)
        backwards = parameters[::-1] if kept else []  # the last layer's gradient comes first
        self.buckets = [GradientBucket(group, workers) for group in assign_buckets(backwards)]
        self.pending_works: list[dist.Work] = []
        self.is_last_micro_batch = False
        self.gradient_norms: GradientNorms | None = None
        if len(self.buckets) > 1 or workers == 1:  # a single bucket is not full before backward ends
            for bucket in self.buckets:
                for index, parameter in enumerate(bucket.parameters):
                    parameter.register_post_accumulate_grad_hook(self._gradient_hook(bucket, index))

    def begin_last_micro_batch(self, gradient_norms: GradientNorms | None) -> None:
        """From here on a gradient that arrives is the step's last one; `norms` receives this step's."""
        self.is_last_micro_batch = True
        self.gradient_norms = gradient_norms
        for bucket in self.buckets:
            bucket.num_missing = len(bucket.parameters)

    def launch_remaining(self) -> None:
        """Send what backward has not sent yet: there is time for something else before `finish`."""
        self.is_last_micro_batch = False
        if self.workers > 1:
            self._launch_until(len(self.buckets))
        else:
            for bucket in self.buckets:
                bucket.fill_missing()

    def wait_for_sums(self) -> None:
        """Wait until every parameter's gradient is the sum over workers."""
        if not self.pending_works:
            return  # alone
        for bucket, work in zip(self.buckets, self.pending_works, strict=True):
            work.wait()
            bucket.sum_received_rows()
            if self.gradient_norms:
                self.gradient_norms.total_norms.append(torch.dot(bucket.flat_gradients, bucket.flat_gradients))
        self.pending_works.clear()
        if self.gradient_norms:
            self.gradient_norms.num_draws += 1

    def _gradient_hook(self, bucket: GradientBucket, index: int) -> Callable[[Tensor], None]:
        def arrived(_: Tensor) -> None:
            if self.is_last_micro_batch:
                bucket.copy_gradient(index)
                if not bucket.num_missing and self.workers > 1:
                    self._launch_ready()

        return arrived

    def _launch_ready(self) -> None:
        ready = len(self.pending_works)
        while ready < len(self.buckets) and not self.buckets[ready].num_missing:
            ready += 1
        self._launch_until(ready)

    def _launch_until(self, end: int) -> None:
        """Start every bucket before `until`, in order: all workers must sum the same one at a time."""
        for bucket in self.buckets[len(self.pending_works) : end]:
            if bucket.num_missing:
                bucket.fill_missing()
            if self.gradient_norms:
                self.gradient_norms.local_norms.append(torch.dot(bucket.flat_gradients, bucket.flat_gradients))
            self.pending_works.append(bucket.start_exchange())


def uses_all_to_all(size_bytes: int, workers: int, device: torch.device) -> bool:
    """Whether so many bytes go to all at once, instead of around a ring."""
    return size_bytes * workers <= MAX_ALL_TO_ALL_BYTES and device.type == "cpu"


def has_large_gradients(parameters: Sequence[nn.Parameter]) -> bool:
    """Whether gradients on a CPU are large enough for their memory to go back to the system after each step."""
    return sum(p.nbytes for p in parameters if p.device.type == "cpu") > FIRST_BUCKET_BYTES


def assign_buckets(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """`parameters` in order, cut into buckets of one type and at most their size."""
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
