"""The training loop of the tutorials: torchrun ... -m benchmarks.textbook_loop.

A Dataset that transforms image by image, read by two processes per worker.
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

from benchmarks.timing import StepClock
from benchmarks.training_case import LR, MOMENTUM, SEED, build_model, get_examples, parse_case
from equipoise.workloads import ImageWorkload


class ImageDataset(Dataset[tuple[Tensor, int]]):
    """Images as torchvision's data sets return them: an array turned into a PIL image, then transformed."""

    def __init__(self, workload: ImageWorkload) -> None:
        images, labels = get_examples(workload)
        self.data = images.permute(0, 2, 3, 1).squeeze(-1).contiguous().numpy()
        self.targets = labels.tolist()
        self.transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize(workload.mean, workload.std)])

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.data[index])), self.targets[index]


def main() -> None:
    """Train epoch by epoch until the clock has counted all steps."""
    case = parse_case(__doc__)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    workload = case.load_workload()
    data = ImageDataset(workload)
    sampler: DistributedSampler[tuple[Tensor, int]] = DistributedSampler(data, seed=SEED)
    loader = DataLoader(
        data, batch_size=case.batch, sampler=sampler, num_workers=2, persistent_workers=True, drop_last=True
    )
    network = DistributedDataParallel(build_model(workload))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(network.parameters(), lr=LR, momentum=MOMENTUM)
    clock = StepClock(case)
    clock.attach_to(optimizer)
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(network(images), labels)
            loss.backward()
            optimizer.step()
            if clock.steps_taken % 100 == 0:
                print(f"step {clock.steps_taken}: loss {loss.item():.3f}", file=sys.stderr)
            if clock.is_done:
                break
        if clock.is_done:
            break
    clock.print_speed()
    dist.barrier()  # gloo of torch 2.14 may abort where one worker leaves before the other
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
