"""Crops of two real photographs, a model that tells them apart, and how well models do so under a condition."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import Tensor

from equipoise.bundle.bundle import load_image_bundle
from equipoise.bundle.kinds.image_bundle import ImageBundle
from equipoise.config import TrainConfig
from equipoise.images.camera import gaussian_blur
from equipoise.training.loop import Training
from tests.support.bundles import publish_run, write_run_folder

CLASSES = ("china", "flower")
SIDE_PIXELS, MIN_CROP_PIXELS, MAX_CROP_PIXELS = 64, 96, 200
TRAINING_IMAGES = 3000  # of each class: a tenth of them is the reference

ImageChange = Callable[[Tensor], Tensor]


@cache
def load_photographs() -> list[np.ndarray]:
    """Load the two photographs that ship with scikit-learn."""
    return list(load_sample_images().images)


def draw_crops(rng: np.random.Generator, count: int, change: ImageChange | None = None) -> tuple[Tensor, Tensor]:
    """Cut pieces out of the photographs, from any place and at any scale, changed if asked; return them with labels."""
    labels, pieces = rng.integers(0, len(CLASSES), count), []
    for label in labels:
        photograph, side = load_photographs()[label], int(rng.integers(MIN_CROP_PIXELS, MAX_CROP_PIXELS))
        top, left = (int(rng.integers(0, length - side)) for length in photograph.shape[:2])
        piece = Image.fromarray(photograph[top : top + side, left : left + side])
        pieces.append(np.asarray(piece.resize((SIDE_PIXELS, SIDE_PIXELS), Image.Resampling.BILINEAR)))
    images = torch.from_numpy(np.stack(pieces)).permute(0, 3, 1, 2).contiguous()
    return change(images) if change else images, torch.from_numpy(labels)


def multiply_channels(gains: Sequence[float]) -> ImageChange:
    """Return the change of images by a gain for red, green and blue."""
    return lambda images: to_bytes(images * torch.tensor(gains).view(1, 3, 1, 1))


def blur_by(pixels: float) -> ImageChange:
    """Return the change of images by a lens that is out of focus."""
    return lambda images: to_bytes(gaussian_blur(images.float(), np.full(len(images), pixels), 2.0))


def to_bytes(values: Tensor) -> Tensor:
    """Round values to 0 to 255."""
    return values.round().clamp(0, 255).byte()


def train_and_publish(folder: Path, seed: int) -> ImageBundle:
    """Train LeNet on crops in a folder for each class, and publish it."""
    images, labels = draw_crops(np.random.default_rng([seed, 1]), TRAINING_IMAGES * len(CLASSES))
    for index, (image, label) in enumerate(zip(images, labels, strict=True)):
        path = folder / "photographs" / CLASSES[label] / f"{index:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)
    config = TrainConfig(
        workload="folder",
        data=str(folder / "photographs"),
        model="lenet",
        image_size=SIDE_PIXELS,
        lr=0.01,
        schedule="cosine",
        max_examples=36_000,
        target=2.0,
        seed=seed,
    )
    training = Training(config)
    for _ in training.laps():
        pass
    write_run_folder(training, folder / "run")
    return load_image_bundle(str(publish_run(folder / "run", folder / "published", drift=True)), "measure drift")


def measure_accuracy(model: ImageBundle, images: Tensor, labels: Tensor) -> float:
    """Return the share of images that a model classifies correctly."""
    predicted = torch.cat([model.run_engine(batch)[0].argmax(1) for batch in images.split(64)])
    return float((predicted == labels).float().mean())
