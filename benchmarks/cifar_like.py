"""Random images of CIFAR's size: nothing to download and nothing to learn, for measuring speed only."""

import torch

from equipoise.config import TrainConfig
from equipoise.workloads import ImageWorkload, Split
from equipoise.workloads.models import model_factory


def build_cifar_like_workload(config: TrainConfig) -> ImageWorkload:
    """Build a workload of 2,048 random images, 3x32x32, of ten classes; always the same ones."""
    generator = torch.Generator().manual_seed(0)

    def draw_split(examples: int) -> Split:
        images = torch.randint(0, 256, (examples, 3, 32, 32), dtype=torch.uint8, generator=generator)
        return Split(images, torch.randint(0, 10, (examples,), generator=generator))

    return ImageWorkload(
        name="cifar-like",
        classes=[str(label) for label in range(10)],
        train=draw_split(2048),
        validation=draw_split(64),
        reference=draw_split(64),
        test=draw_split(64),
        model=model_factory(config.model or "resnet18", num_classes=10, in_channels=3, image_size=32),
        target=1.0,
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
    )
