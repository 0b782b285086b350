"""Augmentation by batches against torchvision's transforms picture by picture: python -m benchmarks.augment.

The same kinds of variation over the same 64x64 pictures, on one thread; ratios of CPU seconds within a round.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torchvision.transforms import v2

from equipoise.hardware import describe_hardware
from equipoise.images.augment import Augment

BATCH, ROUNDS, SIZE = 128, 9, 64
OURS = {
    "crop and flip": Augment(crop=0.08, flip=True),
    "crop, flip and colours": Augment(crop=0.08, flip=True, brightness=0.5, contrast=0.5, saturation=0.5, hue=0.5),
    "colours": Augment(brightness=0.5, contrast=0.5, saturation=0.5, hue=0.5),
    "blur": Augment(blur=2.0),
    "perspective": Augment(distort=0.25),
}
COLOURS = v2.ColorJitter(0.5, 0.5, 0.5, 0.5)
THEIRS: dict[str, Callable[[Tensor], Tensor]] = {
    "crop and flip": v2.Compose([v2.RandomResizedCrop(SIZE), v2.RandomHorizontalFlip()]),
    "crop, flip and colours": v2.Compose([v2.RandomResizedCrop(SIZE), v2.RandomHorizontalFlip(), COLOURS]),
    "colours": COLOURS,
    "blur": v2.GaussianBlur(13, (0.1, 2.0)),
    "perspective": v2.RandomPerspective(0.5, p=1.0),
}


def main() -> None:
    """Print a table."""
    torch.set_num_threads(1)
    pictures = torch.randint(0, 256, (BATCH, 3, SIZE, SIZE), dtype=torch.uint8, generator=torch.manual_seed(0))
    print(", ".join(f"{name} {value}" for name, value in describe_hardware(torch.device("cpu")).items()))
    print(f"\nbatches of {BATCH} pictures of {SIZE}x{SIZE}, one thread, medians of {ROUNDS} rounds\n")
    print("| variation | ours, pictures/s of CPU | torchvision, one by one | ratio | lowest | highest |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, vary in OURS.items():
        ours, theirs = contest(pictures, vary, THEIRS[name])
        ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
        rates = [BATCH / statistics.median(seconds) for seconds in (ours, theirs)]
        shown = " | ".join(f"{value:.1f}" for value in (statistics.median(ratios), min(ratios), max(ratios)))
        print(f"| {name} | {rates[0]:,.0f} | {rates[1]:,.0f} | {shown} |", flush=True)


def contest(pictures: Tensor, vary: Augment, one: Callable[[Tensor], Tensor]) -> tuple[list[float], list[float]]:
    """CPU seconds of each round, ours and theirs."""
    examples = np.arange(BATCH)
    ours, theirs = [], []
    for epoch in range(-1, ROUNDS):
        first = cpu(lambda epoch=epoch: vary(pictures, 0, np.full_like(examples, max(epoch, 0)), examples))
        second = cpu(lambda: torch.stack([one(picture) for picture in pictures]))
        if epoch >= 0:  # the round before is to warm up
            ours.append(first)
            theirs.append(second)
    return ours, theirs


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds that it takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    main()
