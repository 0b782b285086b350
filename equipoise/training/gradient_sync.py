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

from equipoise.training.gradient_norms import Norms

FIRST_BYTES, BUCKET_BYTES = 1 << 20, 25 << 20  # a small first bucket starts the exchange early; DDP's sizes
ONE_ROUND_BYTES = 1 << 18  # of all workers together; beyond it a ring of many small messages is faster than one round


class Bucket:
    """Some parameters' gradients, in one flat tensor."""

    def __init__(self, parameters: list[nn.Parameter], workers: int) -> None:
        self.parameters = parameters
        self.flat = parameters[0].new_zeros(sum(p.numel() for p in parameters))
        small = one_round(self.flat.nbytes, workers, self.flat.device)
        self.rows = self.flat.new_zeros(workers, len(self.flat)) if small else None
        pieces = self.flat.split([p.numel() for p in parameters])
        # laid out as the parameter is: fused optimizers walk both in the order of memory
        self.views = [piece.as_strided(p.shape, p.stride()) for piece, p in zip(pieces, parameters, strict=True)]
        self.missing = len(parameters)

    def take(self, index: int) -> None:
        """Move a gradient in as it arrives: to hold it until the bucket is full costs page faults, 8 % on ResNet-18."""
        parameter, view = self.parameters[index], self.views[index]
        parameter.grad = view.zero_() if parameter.grad is None else view.copy_(parameter.grad)
        self.missing -= 1

    def start(self) -> dist.Work:
        """Begin to sum over workers. What is small goes to all at once: gloo's ring spends its time on waking up."""
        if self.rows is None:
            return dist.all_reduce(self.flat, async_op=True)
        copies = self.flat.repeat(len(self.rows))
        return dist.all_to_all_single(self.rows.view(-1), copies, async_op=True)  # type: ignore[return-value]  # async

    def finish(self) -> None:
        """Sum the rows that came, in the order of ranks: every worker to the same bits."""
        if self.rows is not None:
            torch.sum(self.rows, 0, out=self.flat)

    def complete(self) -> None:
        """Move in what took no part in the last micro-step: zero, or what earlier micro-steps summed."""
        views, gradients = [], []
        for parameter, view in zip(self.parameters, self.views, strict=True):
            if parameter.grad is None:
                parameter.grad = view.zero_()
            elif parameter.grad is not view:
                views.append(view)
                gradients.append(parameter.grad)
                parameter.grad = view
        if views:
            torch._foreach_copy_(views, gradients)


class Exchange:
    """Sums the gradients of all workers: `arm` before the last micro-step's backward, `start` and `finish` after it.

    With one worker it only keeps large gradients in place. Workers whose loss is already divided by the size
    of the global batch end up with its mean gradient.
    """

    def __init__(self, trained: Sequence[nn.Parameter], workers: int) -> None:
        self.workers = workers
        # alone, a large model's gradients are kept too: memory asked for anew each step is 3 % of ResNet-18's time
        kept = workers > 1 or large(trained)
        backwards = trained[::-1] if kept else []  # the last layer's gradient comes first
        self.buckets = [Bucket(group, workers) for group in grouped(backwards)]
        self.works: list[dist.Work] = []
        self.armed = False
        self.norms: Norms | None = None
        if len(self.buckets) > 1 or workers == 1:  # a single bucket is not full before backward ends
            for bucket in self.buckets:
                for index, parameter in enumerate(bucket.parameters):
                    parameter.register_post_accumulate_grad_hook(self._taker(bucket, index))

    def arm(self, norms: Norms | None) -> None:
        """From here on a gradient that arrives is the step's last one; `norms` receives this step's."""
        self.armed = True
        self.norms = norms
        for bucket in self.buckets:
            bucket.missing = len(bucket.parameters)

    def start(self) -> None:
        """Send what backward has not sent yet: there is time for something else before `finish`."""
        self.armed = False
        if self.workers > 1:
            self._launch(len(self.buckets))
        else:
            for bucket in self.buckets:
                bucket.complete()

    def finish(self) -> None:
        """Wait until every parameter's gradient is the sum over workers."""
        if not self.works:
            return  # alone
        for bucket, work in zip(self.buckets, self.works, strict=True):
            work.wait()
            bucket.finish()
            if self.norms:
                self.norms.total.append(torch.dot(bucket.flat, bucket.flat))
        self.works.clear()
        if self.norms:
            self.norms.draws += 1

    def _taker(self, bucket: Bucket, index: int) -> Callable[[Tensor], None]:
        def arrived(_: Tensor) -> None:
            if self.armed:
                bucket.take(index)
                if not bucket.missing and self.workers > 1:
                    self._launch_ready()

        return arrived

    def _launch_ready(self) -> None:
        ready = len(self.works)
        while ready < len(self.buckets) and not self.buckets[ready].missing:
            ready += 1
        self._launch(ready)

    def _launch(self, until: int) -> None:
        """Start every bucket before `until`, in order: all workers must sum the same one at a time."""
        for bucket in self.buckets[len(self.works) : until]:
            if bucket.missing:
                bucket.complete()
            if self.norms:
                self.norms.local.append(torch.dot(bucket.flat, bucket.flat))
            self.works.append(bucket.start())


def one_round(size: int, workers: int, device: torch.device) -> bool:
    """Whether so many bytes go to all at once, instead of around a ring."""
    return size * workers <= ONE_ROUND_BYTES and device.type == "cpu"


def large(trained: Sequence[nn.Parameter]) -> bool:
    """Whether gradients on a CPU are large enough for their memory to go back to the system after each step."""
    return sum(p.nbytes for p in trained if p.device.type == "cpu") > FIRST_BYTES


def grouped(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """`parameters` in order, cut into buckets of one type and at most their size."""
    groups: list[list[nn.Parameter]] = []
    room = 0
    for parameter in parameters:
        size = parameter.numel() * parameter.element_size()
        if not groups or size > room or parameter.dtype != groups[-1][0].dtype:
            groups.append([])
            room = BUCKET_BYTES if len(groups) > 1 else FIRST_BYTES
        groups[-1].append(parameter)
        room -= size
    return groups
