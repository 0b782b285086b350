"""The published data sets as workloads, from small files and tensors in their formats."""

import struct
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from equipoise.config import TrainConfig
from equipoise.workloads import load_workload
from equipoise.workloads.cifar10 import build_cifar10_workload

CLASSES = 10
IMAGES_PER_CLASS = 100


@dataclass
class LabelledImages:
    """Data set with the attributes of torchvision's CIFAR10."""

    data: np.ndarray
    targets: list[int]
    classes: list[str]


def draw_images(side, channels, seed):
    rng = np.random.default_rng(seed)
    labels = np.arange(CLASSES * IMAGES_PER_CLASS) % CLASSES
    images = rng.integers(0, 256, (len(labels), side, side, channels)[: 3 + (channels > 1)], dtype=np.uint8)
    return images, labels


def write_fashion_mnist(root):
    """Write the four files of Fashion-MNIST, unpacked, with few images."""
    folder = root / "FashionMNIST" / "raw"
    folder.mkdir(parents=True)
    for seed, part in enumerate(("train", "t10k")):
        images, labels = draw_images(28, 1, seed)
        header = struct.pack(">IIII", 0x803, *images.shape)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        header = struct.pack(">II", 0x801, len(labels))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(header + labels.astype(np.uint8).tobytes())


def check_splits(workload, channels, side):
    splits = (workload.train, workload.validation, workload.reference)
    assert [len(split) for split in splits] == [800, 100, 100]
    assert len(workload.test) == 1000
    assert all(split.inputs[:].shape[1:] == (channels, side, side) for split in (*splits, workload.test))
    for split in splits:
        assert torch.bincount(split.targets, minlength=CLASSES).tolist() == [len(split) // CLASSES] * CLASSES
    outputs = workload.model()(torch.zeros(2, channels, side, side))
    assert outputs.shape == (2, CLASSES)


@pytest.mark.parametrize("size", [None, 16])
def test_fashion_mnist_has_its_published_test_set_and_three_parts_of_the_training_set(tmp_path, size):
    write_fashion_mnist(tmp_path)
    config = TrainConfig(workload="fashion-mnist", data=str(tmp_path), image_size=size)
    workload = load_workload(config)
    check_splits(workload, 1, size or 28)
    assert workload.name == "fashion-mnist" and len(workload.classes) == CLASSES
    if size is None:
        trained = [split.inputs[:] for split in (workload.train, workload.validation, workload.reference)]
        for seed, images in enumerate((torch.cat(trained), workload.test.inputs[:])):
            published = torch.from_numpy(draw_images(28, 1, seed)[0])
            assert sorted(images.flatten(1).sum(1).tolist()) == sorted(published.flatten(1).sum(1).tolist())


@pytest.mark.parametrize("size", [None, 16])
def test_cifar10_has_its_published_test_set_and_three_parts_of_the_training_set(size):
    names = [f"class {index}" for index in range(CLASSES)]
    parts = [draw_images(32, 3, seed) for seed in (0, 1)]
    sets = [LabelledImages(images, labels.tolist(), names) for images, labels in parts]
    workload = build_cifar10_workload(TrainConfig(workload="cifar10", image_size=size, model="lenet"), *sets)
    check_splits(workload, 3, size or 32)
    assert workload.classes == names
    assert workload.mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=6e-4)  # of the published training images
    assert workload.std == pytest.approx((0.2470, 0.2435, 0.2616), abs=6e-4)
    if size is None:
        assert torch.equal(workload.test.inputs[:], torch.from_numpy(parts[1][0]).permute(0, 3, 1, 2))
        assert workload.test.targets.tolist() == parts[1][1].tolist()
