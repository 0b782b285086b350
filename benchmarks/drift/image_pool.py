"""What the drift benchmarks share: a published vending bundle, and its answers on thousands of rendered images."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from equipoise.bundle.bundle import load_image_bundle
from equipoise.bundle.kinds.image_bundle import ImageBundle
from equipoise.config import TrainConfig
from equipoise.drift.charts.cell_statistics import ImageFeatures
from equipoise.drift.features.confidence import confidence_statistics
from equipoise.drift.features.image_stats import image_statistics
from equipoise.drift.features.random_fourier import RandomFourierFeatures
from equipoise.drift.reference.profile import ReferenceProfile, profile_from_arrays
from equipoise.training.loop import Training
from equipoise.workloads.vending.products import MACHINE_PRODUCTS
from equipoise.workloads.vending.renderer import Scene, render_images
from tests.support.bundles import publish_run, write_run_folder

IMAGE_SIZE, SEED = 64, 2025
CLEAN_FIRST_INDEX = 100_000  # no split of the workload has indices this high
DRIFTED_FIRST_INDEX = CLEAN_FIRST_INDEX + 500_000  # images of streams that change
IMAGES_PER_TASK = 500
PROCESS_COUNT = 2


@dataclass(frozen=True, eq=False)
class ImagePool:
    """Rendered images as the model saw them, one row per image."""

    statistics: NDArray[Any]
    logits: NDArray[Any]
    features: NDArray[Any]
    labels: NDArray[Any]

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, indices: NDArray[np.int64]) -> "ImagePool":
        """Return the pool of the images at some indices."""
        return ImagePool(self.statistics[indices], self.logits[indices], self.features[indices], self.labels[indices])

    def image_features(self, random_fourier: RandomFourierFeatures, temperature: float) -> ImageFeatures:
        """Return the image features that the charts monitor."""
        confidence = confidence_statistics(self.logits, temperature)
        return ImageFeatures(
            np.concatenate([self.statistics, confidence], 1), self.logits.argmax(1), random_fourier(self.features)
        )


@cache
def publish_vending_bundle() -> Path:
    """Train and publish a LeNet bundle, from 24 products to ten, as in the guide to fine-tuning; return its path."""
    folder = Path(mkdtemp(prefix="equipoise-drift-"))
    source = TrainConfig(
        workload="vending-source", batch_size=32, lr=0.05, schedule="cosine", max_examples=40_000, target=2.0
    )
    tuned = replace(source, workload="vending", init_from=str(folder / "source"), lr=0.1, max_examples=12_000)
    for name, config in (("source", source), ("run", tuned)):
        training = Training(config)
        for _ in training.laps():
            pass
        write_run_folder(training, folder / name)
    return publish_run(folder / "run", folder / "bundle", drift=True)


def load_vending_profile() -> ReferenceProfile:
    """Return the reference profile of the vending bundle."""
    bundle = load_image_bundle(publish_vending_bundle(), "measure drift")
    arrays = bundle.load_reference_arrays()
    return profile_from_arrays(arrays, bundle.classes, arrays["features"].shape[1])


def render_image_pool(count: int, scene: Scene | None = None, first_index: int = CLEAN_FIRST_INDEX) -> ImagePool:
    """Render images of one scene and run the model on them, in several processes."""
    tasks = [
        (str(publish_vending_bundle()), first_index + start, min(IMAGES_PER_TASK, count - start), scene)
        for start in range(0, count, IMAGES_PER_TASK)
    ]
    with ProcessPoolExecutor(PROCESS_COUNT) as workers:
        columns = zip(*workers.map(render_and_predict, tasks), strict=True)
        return ImagePool(*(np.concatenate(column) for column in columns))


def render_and_predict(task: tuple[str, int, int, Scene | None]) -> tuple[NDArray[Any], ...]:
    """Render the images of one task; return their statistics, logits, features and labels."""
    bundle_path, first_index, count, scene = task
    torch.set_num_threads(1)
    run_engine = load_bundle_once(bundle_path).run_engine
    images, labels = render_images(
        MACHINE_PRODUCTS, np.arange(first_index, first_index + count), SEED, IMAGE_SIZE, scene
    )
    outputs = [run_engine(batch) for batch in images.split(64)]
    logits, features = (torch.cat([output[position] for output in outputs]).numpy() for position in (0, 1))
    return image_statistics(images.numpy()), logits, features, labels.numpy()


@cache
def load_bundle_once(path: str) -> ImageBundle:
    """Load a bundle, once in each process."""
    return load_image_bundle(path, "measure drift")
