"""Augmentation by batches against torchvision's transforms image by image: python -m benchmarks.augment.

Both apply the same kinds of variation to the same 64x64 images, on one thread; ratios of CPU seconds within a round.
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

BATCH_SIZE, ROUNDS, IMAGE_SIZE = 128, 9, 64
EQUIPOISE_AUGMENTATIONS = {
    "crop and flip": Augment(crop=0.08, flip=True),
    "crop, flip and colours": Augment(crop=0.08, flip=True, brightness=0.5, contrast=0.5, saturation=0.5, hue=0.5),
    "colours": Augment(brightness=0.5, contrast=0.5, saturation=0.5, hue=0.5),
    "blur": Augment(blur=2.0),
    "perspective": Augment(distort=0.25),
}
TORCHVISION_COLOR_JITTER = v2.ColorJitter(0.5, 0.5, 0.5, 0.5)
TORCHVISION_TRANSFORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "crop and flip": v2.Compose([v2.RandomResizedCrop(IMAGE_SIZE), v2.RandomHorizontalFlip()]),
    "crop, flip and colours": v2.Compose(
        [v2.RandomResizedCrop(IMAGE_SIZE), v2.RandomHorizontalFlip(), TORCHVISION_COLOR_JITTER]
    ),
    "colours": TORCHVISION_COLOR_JITTER,
    "blur": v2.GaussianBlur(13, (0.1, 2.0)),
    "perspective": v2.RandomPerspective(0.5, p=1.0),
}


def main() -> None:
    """Print a table of images per CPU second for each kind of variation."""
    torch.set_num_threads(1)
    images = torch.randint(
        0, 256, (BATCH_SIZE, 3, IMAGE_SIZE, IMAGE_SIZE), dtype=torch.uint8, generator=torch.manual_seed(0)
    )
    print(describe_hardware(torch.device("cpu")))
    print(f"\nbatches of {BATCH_SIZE} images of {IMAGE_SIZE}x{IMAGE_SIZE}, one thread, medians of {ROUNDS} rounds\n")
    print("| variation | ours, images/s of CPU | torchvision, one by one | ratio | lowest | highest |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, augment in EQUIPOISE_AUGMENTATIONS.items():
        ours, theirs = time_augmentations(images, augment, TORCHVISION_TRANSFORMS[name])
        ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
        rates = [BATCH_SIZE / statistics.median(seconds) for seconds in (ours, theirs)]
        cells = " | ".join(f"{value:.1f}" for value in (statistics.median(ratios), min(ratios), max(ratios)))
        print(f"| {name} | {rates[0]:,.0f} | {rates[1]:,.0f} | {cells} |", flush=True)


def time_augmentations(
    images: Tensor, augment: Augment, transform: Callable[[Tensor], Tensor]
) -> tuple[list[float], list[float]]:
    """Return the CPU seconds of each round, those of Equipoise and those of torchvision."""
    examples = np.arange(BATCH_SIZE)
    ours, theirs = [], []
    for epoch in range(-1, ROUNDS):
        our_seconds = measure_cpu_seconds(
            lambda epoch=epoch: augment.augment_images(images, 0, np.full_like(examples, max(epoch, 0)), examples)
        )
        their_seconds = measure_cpu_seconds(lambda: torch.stack([transform(image) for image in images]))
        if epoch >= 0:  # round -1 is the warm-up
            ours.append(our_seconds)
            theirs.append(their_seconds)
    return ours, theirs


def measure_cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds that a call takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    main()
