"""What the benches of drift share: a published model of vending, and what it says of thousands of rendered pictures."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from equipoise.bundle.bundle import Bundle, load_bundle
from equipoise.config import TrainConfig
from equipoise.drift.charts.baseline import ImageFeatures
from equipoise.drift.features.confidence import confidence_statistics
from equipoise.drift.features.image_stats import image_statistics
from equipoise.drift.features.random_fourier import RandomFourierFeatures
from equipoise.drift.reference.profile import ReferenceProfile, profile_from_arrays
from equipoise.training.loop import Training
from equipoise.workloads.vending.products import MACHINE_PRODUCTS
from equipoise.workloads.vending.renderer import Scene, render_images
from tests.support.bundles import kept, published

SIZE, SEED = 64, 2025
APART = 100_000  # the first index: no split of the workload reaches so far
OTHER = APART + 500_000  # of pictures for streams that change
AT_ONCE = 500
PROCESSES = 2


@dataclass(frozen=True, eq=False)
class Pool:
    """Pictures as the model saw them."""

    figures: NDArray[Any]
    logits: NDArray[Any]
    features: NDArray[Any]
    labels: NDArray[Any]

    def __len__(self) -> int:
        return len(self.labels)

    def some(self, places: NDArray[np.int64]) -> "Pool":
        """A few of them."""
        return Pool(self.figures[places], self.logits[places], self.features[places], self.labels[places])

    def seen(self, waves: RandomFourierFeatures, temperature: float) -> ImageFeatures:
        """As charts take them."""
        sure = confidence_statistics(self.logits, temperature)
        return ImageFeatures(np.concatenate([self.figures, sure], 1), self.logits.argmax(1), waves(self.features))


@cache
def model() -> Path:
    """The bundle: LeNet, from 24 products to the ten of a machine, as the README trains it."""
    place = Path(mkdtemp(prefix="equipoise-drift-"))
    source = TrainConfig(
        workload="vending-source", batch_size=32, lr=0.05, schedule="cosine", max_examples=40_000, target=2.0
    )
    tuned = replace(source, workload="vending", init_from=str(place / "source"), lr=0.1, max_examples=12_000)
    for name, trial in (("source", source), ("run", tuned)):
        training = Training(trial)
        for _ in training.laps():
            pass
        kept(training, place / name)
    return published(place / "run", place / "bundle", drift=True)


def reference() -> ReferenceProfile:
    """What the bundle knows."""
    held = load_bundle(model())
    kept_arrays = held.load_reference_arrays()
    return profile_from_arrays(kept_arrays, len(held.classes), kept_arrays["features"].shape[1])


def pool(count: int, scene: Scene | None = None, first: int = APART) -> Pool:
    """Pictures of one scene, by several processes."""
    parts = [(str(model()), first + start, min(AT_ONCE, count - start), scene) for start in range(0, count, AT_ONCE)]
    with ProcessPoolExecutor(PROCESSES) as workers:
        columns = zip(*workers.map(looked, parts), strict=True)
        return Pool(*(np.concatenate(column) for column in columns))


def looked(part: tuple[str, int, int, Scene | None]) -> tuple[NDArray[Any], ...]:
    """A few pictures, rendered and answered."""
    place, first, count, scene = part
    torch.set_num_threads(1)
    run = opened(place).run_engine
    pictures, labels = render_images(MACHINE_PRODUCTS, np.arange(first, first + count), SEED, SIZE, scene)
    answers = [run(some) for some in pictures.split(64)]
    logits, features = (torch.cat([one[place] for one in answers]).numpy() for place in (0, 1))
    return image_statistics(pictures.numpy()), logits, features, labels.numpy()


@cache
def opened(place: str) -> Bundle:
    """A bundle, once a process."""
    return load_bundle(place)
