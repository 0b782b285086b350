"""Workloads that servers are compared on: digits of 28x28 with LeNet, noise of 224x224 with MobileNet."""

from dataclasses import replace

import torch

from equipoise.config import TrainConfig
from equipoise.workloads import ImageWorkload, Split
from equipoise.workloads.digits import digits
from equipoise.workloads.models import model_factory


def lenet(config: TrainConfig) -> ImageWorkload:
    """Build the digits workload at the image size of MNIST, 28x28."""
    return replace(digits(replace(config, image_size=28)), name="lenet")


def mobilenet(config: TrainConfig) -> ImageWorkload:
    """Build a workload of ten classes of noise, each tinted with its own colour."""
    generator = torch.Generator().manual_seed(0)

    def draw_split(examples: int) -> Split:
        labels = torch.arange(examples) % 10
        noise = torch.randint(0, 156, (examples, 3, 224, 224), generator=generator)
        noise[:, 0] += labels[:, None, None] * 10
        return Split(noise.to(torch.uint8), labels)

    return ImageWorkload(
        name="mobilenet",
        classes=[str(label) for label in range(10)],
        train=draw_split(64),
        validation=draw_split(20),
        reference=draw_split(200),
        test=draw_split(20),
        model=model_factory("mobilenet_v3_small", num_classes=10, in_channels=3, image_size=224),
        target=1.0,
        mean=(0.45, 0.45, 0.45),
        std=(0.25, 0.25, 0.25),
    )
