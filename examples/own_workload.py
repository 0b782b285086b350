"""Define a workload of your own (data, model, target) and train it, here without Ray.

A workload is a function from a `TrainConfig` to a `Workload`, here an `ImageWorkload`: four splits, a model, and the
metric at which training stops. This one draws discs and rings, and learns to tell them apart.

    python examples/own_workload.py

From the same folder, every command takes it by name, on as many workers as you like:

    cd examples && equipoise train --workload own_workload:discs_or_rings --workers 2 --out runs/rings
"""

import torch
from torch import nn

from equipoise import Augment, ImageWorkload, Split, TrainConfig, Training

SIDE = 24  # pixels
SMALLEST_RADIUS, LARGEST_RADIUS = 5, 9  # pixels
RING_WIDTH = 2.5  # pixels


def discs_or_rings(config: TrainConfig) -> ImageWorkload:
    """Build the workload; `config` has the options of the command line, such as config.image_size."""
    generator = torch.Generator().manual_seed(0)  # the same data whatever config.seed is
    return ImageWorkload(
        name="discs-or-rings",
        classes=["disc", "ring"],
        train=draw_shapes(600, generator),
        validation=draw_shapes(200, generator),
        reference=draw_shapes(200, generator),
        test=draw_shapes(200, generator),
        model=build_model,
        target=0.95,
        mean=(0.5,),
        std=(0.25,),
        augment=Augment(shift=2, flip=True),
    )


def draw_shapes(count: int, generator: torch.Generator) -> Split:
    """Draw grey discs (class 0) and rings (class 1) of random radius and centre on a noisy background."""
    labels = torch.arange(count) % 2
    radius = SMALLEST_RADIUS + torch.rand(count, 1, 1, generator=generator) * (LARGEST_RADIUS - SMALLEST_RADIUS)
    center = SIDE / 2 + torch.randn(2, count, 1, 1, generator=generator)
    rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    distance = torch.hypot(rows - center[0], columns - center[1])
    is_hole = (distance < radius - RING_WIDTH) & labels.bool()[:, None, None]
    shapes = (distance < radius) & ~is_hole
    images = 90 + 80 * shapes + 30 * torch.randn(count, SIDE, SIDE, generator=generator)
    return Split(images.clamp(0, 255).to(torch.uint8)[:, None], labels)


def build_model() -> nn.Module:
    """Build a small network; its last linear layer is the classifier."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 32),
        nn.ReLU(),
        nn.Linear(32, 2),
    )


def main() -> None:
    """Train until the target is reached, printing each evaluation, and evaluate once on the test split."""
    config = TrainConfig(workload="own_workload:discs_or_rings", batch_size=16, lr=0.05)
    training = Training(config, workload=discs_or_rings(config))
    for lap in training.laps():
        if lap.metric is not None:
            print(f"{training.examples_seen:6d} examples seen: {lap.metric:.1%} of the validation images are right")
    accuracy = training.evaluate(training.workload.test)
    print(f"{training.status}: {accuracy:.1%} of the test images are right")


if __name__ == "__main__":
    main()
