"""What servers are compared on: digits of 28x28 by LeNet, noise of 224x224 by MobileNet."""

from dataclasses import replace

import torch

from equipoise.config import Trial
from equipoise.workloads import Split, Workload
from equipoise.workloads.digits import digits
from equipoise.workloads.models import model


def lenet(trial: Trial) -> Workload:
    """Digits of MNIST's size."""
    return replace(digits(replace(trial, size=28)), name="lenet")


def mobilenet(trial: Trial) -> Workload:
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
        model=model("mobilenet_v3_small", classes=10, channels=3, size=224),
        target=1.0,
        mean=(0.45, 0.45, 0.45),
        std=(0.25, 0.25, 0.25),
    )
