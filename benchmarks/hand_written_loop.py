"""A loop as a careful engineer writes it by hand: torchrun ... -m benchmarks.hand_written_loop.

DistributedDataParallel over gloo on the CPU, also for one worker; on a GPU one process
and the plain model. The pictures stay in memory and are indexed a batch at a time.
"""

import itertools
import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from benchmarks.timing import Clock, rank, workers
from benchmarks.training_case import LR, MOMENTUM, case, examples, model, parser, scale

REPORT_STEPS = 100


def main() -> None:
    """Train until the clock has seen enough."""
    arguments = parser(__doc__)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--fused", action="store_true", help="SGD's fused kernel")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    asked, device = case(given, given.model), torch.device(given.device)
    made = asked.workload()
    network: nn.Module = model(made).to(device)
    if device.type == "cpu":  # each worker keeps running statistics of its own between checkpoints, as ours does
        network = DistributedDataParallel(network, gradient_as_bucket_view=True, forward_sync_buffers=False)
    optimizer = torch.optim.SGD(network.parameters(), lr=LR, momentum=MOMENTUM, fused=given.fused or None)
    clock = Clock(asked)
    clock.watch(optimizer)
    pictures, labels = (part.to(device) for part in examples(made))
    gain, offset = (part.to(device) for part in scale(made))
    losses = []
    for chosen in batches(len(labels), asked.batch, device):
        images = pictures[chosen].float().mul_(gain).add_(offset)
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(network(images), labels[chosen])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if len(losses) == REPORT_STEPS:
            print(f"loss {torch.stack(losses).mean():.3f}", file=sys.stderr)
            losses.clear()
        if clock.done:
            break
    clock.report()
    dist.barrier()  # gloo of torch 2.14 may abort where one worker leaves before the other
    dist.destroy_process_group()


def batches(count: int, batch: int, device: torch.device) -> Iterator[Tensor]:
    """This worker's indices, a full batch at a time: every epoch is shuffled and dealt to the workers."""
    for epoch in itertools.count():
        order = torch.randperm(count, generator=torch.Generator().manual_seed(epoch))
        own = order[rank() :: workers()].to(device)
        yield from own[: len(own) // batch * batch].split(batch)


if __name__ == "__main__":
    main()
