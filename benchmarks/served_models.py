"""What servers are compared on: digits of 28x28 by LeNet, noise of 224x224 by MobileNet."""

from dataclasses import replace

import torch

from equipoise.config import TrainConfig
from equipoise.workloads import Split, Workload
from equipoise.workloads.digits import digits
from equipoise.workloads.models import model_factory


def lenet(trial: TrainConfig) -> Workload:
    """Digits of MNIST's size."""
    return replace(digits(replace(trial, image_size=28)), name="lenet")


def mobilenet(trial: TrainConfig) -> Workload:
    """Ten classes of noise, each with a colour of its own."""
    generator = torch.Generator().manual_seed(0)

    def drawn(examples: int) -> Split:
        labels = torch.arange(examples) % 10
        noise = torch.randint(0, 156, (examples, 3, 224, 224), generator=generator)
        noise[:, 0] += labels[:, None, None] * 10
        return Split(noise.to(torch.uint8), labels)

    return Workload(
        name="mobilenet",
        classes=[str(label) for label in range(10)],
        train=drawn(64),
        validation=drawn(20),
        reference=drawn(200),
        test=drawn(20),
        model=model_factory("mobilenet_v3_small", num_classes=10, in_channels=3, image_size=224),
        target=1.0,
        mean=(0.45, 0.45, 0.45),
        std=(0.25, 0.25, 0.25),
    )
