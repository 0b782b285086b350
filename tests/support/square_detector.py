"""Detector of red and blue squares that needs no training, with scenes that hold up to four of them."""

from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from equipoise.bundle.kinds.inference_module import DetectionModule
from equipoise.config import TrainConfig
from equipoise.drift.features.box_stats import FoundBoxes
from equipoise.drift.profiling.box_profile import SearchedImages, build_box_profile, extract_box_features
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.training.loop import Training
from equipoise.workloads import BoxWorkload, Split
from tests.support.bundles import publish_run, write_run_folder

SIDE_PIXELS, SQUARE_PIXELS, STRIDE, MAX_BOXES = 48, 8, 4, 6
CLASSES = ("red", "blue")
COLORS = np.array([[220, 30, 40], [40, 50, 220]])


class SquareDetector(nn.Module):
    """Answers the spots that are most red or most blue, by colour differences averaged over a square."""

    def __init__(self) -> None:
        super().__init__()
        weight = torch.tensor([[1.0, -0.5, -0.5], [-0.5, -0.5, 1.0]])
        self.head = nn.Conv2d(3, 2, 1)
        with torch.no_grad():
            self.head.weight.copy_(weight[..., None, None] * 12)
            self.head.bias.fill_(-6.0)

    def forward(self, pictures: Tensor) -> dict[str, Tensor]:
        """Return answers (n, MAX_BOXES, 6) for images from 0 to 1."""
        heat = self.head(F.avg_pool2d(pictures, SQUARE_PIXELS, STRIDE))
        heat = torch.where(heat == F.max_pool2d(heat, 3, 1, 1), heat, torch.full_like(heat, -20.0))
        width = heat.shape[3]
        scores, places = heat.flatten(1).sigmoid().topk(MAX_BOXES)
        cells = places % (width * heat.shape[2])
        x, y = cells % width * STRIDE, cells // width * STRIDE
        side = torch.full_like(scores, SQUARE_PIXELS)
        labels = places // (width * heat.shape[2])
        return {"detections": torch.stack([x.float(), y.float(), side, side, scores, labels.float()], -1)}


def draw_squares(count: int, seed: int, shares: tuple[float, float] = (0.5, 0.5)) -> tuple[Tensor, Tensor]:
    """Return images (n, 3, 48, 48) of up to four squares on grey noise, and their boxes (n, 4, 6)."""
    rng = np.random.default_rng(seed)
    images = rng.normal(120, 12, (count, 3, SIDE_PIXELS, SIDE_PIXELS)) + rng.normal(0, 8, (count, 1, 1, 1))
    targets = np.full((count, 4, 6), -1.0)
    for image, boxes in zip(images, targets, strict=True):
        slots = rng.permutation(4)[: rng.choice(5, p=[0.05, 0.15, 0.3, 0.3, 0.2])]
        for index, slot in enumerate(slots):
            label = int(rng.choice(2, p=shares))
            x, y = (STRIDE * int(rng.integers(1, 4)) + 24 * part for part in divmod(int(slot), 2)[::-1])
            image[:, y : y + SQUARE_PIXELS, x : x + SQUARE_PIXELS] = COLORS[label][:, None, None] + rng.normal(0, 6)
            boxes[index] = [label, x, y, SQUARE_PIXELS, SQUARE_PIXELS, 0]
    return torch.from_numpy(np.clip(images, 0, 255).astype(np.uint8)), torch.from_numpy(targets)


def squares(config: TrainConfig) -> BoxWorkload:
    """Build a workload on which the detector is right from the start: a step at a tiny rate leaves it as it is."""
    splits = {
        name: Split(images, targets.float())
        for name, seed in (("train", 21), ("validation", 22), ("reference", 23), ("test", 24))
        for images, targets in [draw_squares(120, seed)]
    }
    return BoxWorkload(
        name="squares",
        classes=CLASSES,
        model=SquareDetector,
        target=None,
        loss=mean_of_scores,
        mean=[0.0] * 3,
        std=[1.0] * 3,
        **splits,
    )


def mean_of_scores(outputs: dict[str, Tensor], targets: Tensor) -> Tensor:
    """Return a loss that depends on the weights."""
    return outputs["detections"][..., 4].mean() + 0 * targets.mean()


def publish_squares(folder: Path, drift: bool = False) -> Path:
    """Publish the detector, and return the folder of the bundle."""
    training = Training(
        TrainConfig(workload=f"{__name__}:squares", batch_size=8, max_examples=8, lr=1e-9, optimizer="sgd")
    )
    for _ in training.laps():
        pass
    return publish_run(write_run_folder(training, folder / "run"), folder / "bundle", drift=drift)


@cache
def build_detection_module() -> nn.Module:
    """Return the module that would be published."""
    return DetectionModule(SquareDetector(), "head", [0.0] * 3, [1.0] * 3).eval()


def find_squares(images: Tensor):
    """Find the squares in images."""
    module = build_detection_module()
    with torch.inference_mode():
        return FoundBoxes(*(output.numpy() for output in module(images)))


@cache
def squares_profile() -> ReferenceProfile:
    """Return the profile of 600 scenes."""
    images, targets = draw_squares(600, 1)
    label_counts = (targets[..., 0] >= 0).sum(1).numpy()
    reference = SearchedImages(images, find_squares(images), label_counts)
    return build_box_profile(find_squares, reference, CLASSES, 0.5, corrupted_image_count=32)


def extract_square_features(images: Tensor):
    """Return what charts need of scenes."""
    return extract_box_features(squares_profile(), SearchedImages(images, find_squares(images)))
