"""The loop of the tutorials: torchrun ... -m benchmarks.textbook_loop.

A Dataset that transforms picture by picture, read by two processes a worker.
"""

import itertools
import sys

import torch
import torch.distributed as dist
from PIL import Image
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchvision import transforms

from benchmarks.timing import Clock
from benchmarks.training_case import LR, MOMENTUM, SEED, asked, examples, model
from equipoise.workloads import Workload


class Pictures(Dataset[tuple[Tensor, int]]):
    """Pictures as torchvision's data sets give them: an array turned into an image, then transformed."""

    def __init__(self, made: Workload) -> None:
        pictures, labels = examples(made)
        self.data = pictures.permute(0, 2, 3, 1).squeeze(-1).contiguous().numpy()
        self.targets = labels.tolist()
        self.transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize(made.mean, made.std)])

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.data[index])), self.targets[index]


def main() -> None:
    """Train epoch by epoch until the clock has seen enough."""
    case = asked(__doc__)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    made = case.workload()
    data = Pictures(made)
    sampler: DistributedSampler[tuple[Tensor, int]] = DistributedSampler(data, seed=SEED)
    loader = DataLoader(
        data, batch_size=case.batch, sampler=sampler, num_workers=2, persistent_workers=True, drop_last=True
    )
    network = DistributedDataParallel(model(made))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(network.parameters(), lr=LR, momentum=MOMENTUM)
    clock = Clock(case)
    clock.watch(optimizer)
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(network(images), labels)
            loss.backward()
            optimizer.step()
            if clock.taken % 100 == 0:
                print(f"step {clock.taken}: loss {loss.item():.3f}", file=sys.stderr)
            if clock.done:
                break
        if clock.done:
            break
    clock.report()
    dist.barrier()  # gloo of torch 2.14 may abort where one worker leaves before the other
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
