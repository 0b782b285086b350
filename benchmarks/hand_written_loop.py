"""A training loop as a careful engineer writes it by hand: torchrun ... -m benchmarks.hand_written_loop.

DistributedDataParallel over gloo on the CPU, also for one worker; on a GPU one process
and the plain model. The images stay in memory and are indexed a batch at a time.
"""

import itertools
import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from benchmarks.timing import StepClock, read_rank, read_world_size
from benchmarks.training_case import (
    LR,
    MOMENTUM,
    build_case,
    build_case_parser,
    build_model,
    compute_scale,
    get_examples,
)

REPORT_STEPS = 100


def main() -> None:
    """Train until the clock has counted all steps."""
    parser = build_case_parser(__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--fused", action="store_true", help="use the fused kernel of SGD")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    case, device = build_case(arguments, arguments.model), torch.device(arguments.device)
    workload = case.load_workload()
    network: nn.Module = build_model(workload).to(device)
    if device.type == "cpu":  # each worker keeps its own running statistics between checkpoints, as in Equipoise
        network = DistributedDataParallel(network, gradient_as_bucket_view=True, forward_sync_buffers=False)
    optimizer = torch.optim.SGD(network.parameters(), lr=LR, momentum=MOMENTUM, fused=arguments.fused or None)
    clock = StepClock(case)
    clock.attach_to(optimizer)
    all_images, labels = (part.to(device) for part in get_examples(workload))
    gain, offset = (part.to(device) for part in compute_scale(workload))
    losses = []
    for indices in iterate_batches(len(labels), case.batch, device):
        images = all_images[indices].float().mul_(gain).add_(offset)
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(network(images), labels[indices])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if len(losses) == REPORT_STEPS:
            print(f"loss {torch.stack(losses).mean():.3f}", file=sys.stderr)
            losses.clear()
        if clock.is_done:
            break
    clock.print_speed()
    dist.barrier()  # gloo of torch 2.14 may abort where one worker leaves before the other
    dist.destroy_process_group()


def iterate_batches(count: int, batch: int, device: torch.device) -> Iterator[Tensor]:
    """Yield this worker's indices, a full batch at a time; every epoch is shuffled and dealt to the workers."""
    for epoch in itertools.count():
        order = torch.randperm(count, generator=torch.Generator().manual_seed(epoch))
        own = order[read_rank() :: read_world_size()].to(device)
        yield from own[: len(own) // batch * batch].split(batch)


if __name__ == "__main__":
    main()
