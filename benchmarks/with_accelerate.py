"""A training loop prepared by Accelerate over tensors in memory: torchrun ... -m benchmarks.with_accelerate."""

import sys

import torch
from accelerate import Accelerator
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.timing import StepClock
from benchmarks.training_case import LR, MOMENTUM, build_model, compute_scale, get_examples, parse_case


def main() -> None:
    """Train until the clock has counted all steps."""
    case = parse_case(__doc__)
    accelerator = Accelerator(cpu=True)
    torch.set_num_threads(1)  # Accelerate sets a number of threads of its own
    workload, clock = case.load_workload(), StepClock(case)
    gain, offset = compute_scale(workload)
    network = build_model(workload)
    optimizer = torch.optim.SGD(network.parameters(), lr=LR, momentum=MOMENTUM)
    clock.attach_to(optimizer)
    loader = DataLoader(TensorDataset(*get_examples(workload)), batch_size=case.batch, shuffle=True, drop_last=True)
    network, optimizer, loader = accelerator.prepare(network, optimizer, loader)
    while not clock.is_done:
        losses = []
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(network(images.float().mul_(gain).add_(offset)), labels)
            accelerator.backward(loss)
            optimizer.step()
            losses.append(loss.detach())
            if clock.is_done:
                break
        print(f"loss {torch.stack(losses).mean():.3f}", file=sys.stderr)
    clock.print_speed()
    accelerator.end_training()


if __name__ == "__main__":
    main()
