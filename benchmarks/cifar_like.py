"""Pictures of CIFAR's size made of noise: nothing to download, and nothing to learn but the speed."""

import torch

from equipoise.config import TrainConfig
from equipoise.workloads import Split, Workload
from equipoise.workloads.models import model_factory


def workload(trial: TrainConfig) -> Workload:
    """2,048 pictures, 3x32x32, of ten classes; always the same ones."""
    generator = torch.Generator().manual_seed(0)

    def drawn(examples: int) -> Split:
        pictures = torch.randint(0, 256, (examples, 3, 32, 32), dtype=torch.uint8, generator=generator)
        return Split(pictures, torch.randint(0, 10, (examples,), generator=generator))

    return Workload(
        name="cifar-like",
        classes=[str(label) for label in range(10)],
        train=drawn(2048),
        validation=drawn(64),
        reference=drawn(64),
        test=drawn(64),
        model=model_factory(trial.model or "resnet18", num_classes=10, in_channels=3, image_size=32),
        target=1.0,
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
    )
