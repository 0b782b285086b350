"""A loop prepared by Accelerate over tensors in memory: torchrun ... -m benchmarks.with_accelerate."""

import sys

import torch
from accelerate import Accelerator
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.timing import Clock
from benchmarks.training_case import LR, MOMENTUM, asked, examples, model, scale


def main() -> None:
    """Train until the clock has seen enough."""
    case = asked(__doc__)
    accelerator = Accelerator(cpu=True)
    torch.set_num_threads(1)  # Accelerate has a number of its own in mind
    made, clock = case.workload(), Clock(case)
    gain, offset = scale(made)
    network = model(made)
    optimizer = torch.optim.SGD(network.parameters(), lr=LR, momentum=MOMENTUM)
    clock.watch(optimizer)
    loader = DataLoader(TensorDataset(*examples(made)), batch_size=case.batch, shuffle=True, drop_last=True)
    network, optimizer, loader = accelerator.prepare(network, optimizer, loader)
    while not clock.done:
        losses = []
        for pictures, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(network(pictures.float().mul_(gain).add_(offset)), labels)
            accelerator.backward(loss)
            optimizer.step()
            losses.append(loss.detach())
            if clock.done:
                break
        print(f"loss {torch.stack(losses).mean():.3f}", file=sys.stderr)
    clock.report()
    accelerator.end_training()


if __name__ == "__main__":
    main()
