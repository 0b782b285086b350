"""Workload cifar10: CIFAR-10, 60,000 photographs in ten classes, 32x32 (Krizhevsky, 2009)."""

from typing import Any

import torch

from equipoise.config import TrainConfig
from equipoise.images.augment import Augment
from equipoise.workloads.base import Split, select_split, stratified_split
from equipoise.workloads.download import load_torchvision_dataset, resize_images
from equipoise.workloads.image_workload import ImageWorkload
from equipoise.workloads.models import model_factory

CIFAR10_FILES = ["cifar-10-python.tar.gz"]


def cifar10(config: TrainConfig) -> ImageWorkload:
    """Build the CIFAR-10 workload: the published test set is the test split, the others share the training set."""
    return build_cifar10_workload(config, *load_torchvision_dataset("CIFAR10", config.data, CIFAR10_FILES))


def build_cifar10_workload(config: TrainConfig, train_set: Any, test_set: Any) -> ImageWorkload:
    """Build the workload from torchvision's data sets, whose `data` are uint8 images (examples, height, width, 3)."""
    size = config.image_size or train_set.data.shape[1]
    pictures, labels = dataset_to_tensors(train_set, size)
    test_pictures, test_labels = dataset_to_tensors(test_set, size)
    train, validation, reference = stratified_split(labels.numpy(), (0.1, 0.1))
    return ImageWorkload(
        name="cifar10",
        classes=train_set.classes,
        train=select_split(pictures, labels, train),
        validation=select_split(pictures, labels, validation),
        reference=select_split(pictures, labels, reference),
        test=Split(test_pictures, test_labels),
        model=model_factory(config.model or "resnet18", num_classes=10, in_channels=3, image_size=size),
        target=0.75,
        mean=(0.491, 0.482, 0.447),
        std=(0.247, 0.243, 0.262),
        augment=Augment(shift=4, flip=True),
    )


def dataset_to_tensors(dataset: Any, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images as (examples, channels, size, size), and labels."""
    pictures = torch.from_numpy(dataset.data).permute(0, 3, 1, 2).contiguous()
    return resize_images(pictures, size), torch.tensor(dataset.targets)
