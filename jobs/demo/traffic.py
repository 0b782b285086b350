"""Simulated clients of a vending service: they send rendered images and know which product each of them shows."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from equipoise.workloads.vending.products import MACHINE_PRODUCTS
from equipoise.workloads.vending.renderer import Scene, render_images
from jobs.demo.service_clients import JudgedAnswers, ServiceClients, split_runs

IMAGE_PIXELS = 64
PRODUCT_NAMES = [product.name for product in MACHINE_PRODUCTS]


@dataclass
class SimulatedClients(ServiceClients):
    """Clients who show one product at a time."""

    label_by_pixels: dict[bytes, str] = field(default_factory=dict)
    """true label of every image sent, by its pixels"""

    def send_and_judge(self, count: int, scenes: Sequence[Scene], run_images: int) -> JudgedAnswers:
        """Send new images under these lights in turn, and count those labelled correctly."""
        return JudgedAnswers(right=self.count_correct_images(*self.render_mixed_images(count, scenes, run_images)))

    def count_correct(self, count: int, scene: Scene | None = None) -> int:
        """Send `count` new images, up to four at a time, and return how many were labelled correctly."""
        return self.count_correct_images(*self.render_images(count, scene))

    def count_correct_images(self, images: Tensor, names: list[str]) -> int:
        """Send images, up to four at a time, and return how many were labelled with these names."""
        answers = self.predict_images(images)
        return sum(answer is not None and answer["label"] == name for answer, name in zip(answers, names, strict=True))

    def render_images(self, count: int, scene: Scene | None = None) -> tuple[Tensor, list[str]]:
        """Render new images and return them with the names of the products that they show."""
        indices = np.arange(self.rendered_count, self.rendered_count + count)
        self.rendered_count += count
        images, labels = render_images(MACHINE_PRODUCTS, indices, self.seed, IMAGE_PIXELS, scene)
        names = [PRODUCT_NAMES[int(label)] for label in labels]
        self.label_by_pixels |= {image.numpy().tobytes(): name for image, name in zip(images, names, strict=True)}
        return images, names

    def render_mixed_images(self, count: int, scenes: Sequence[Scene], run_images: int) -> tuple[Tensor, list[str]]:
        """Render new images under several lights in turn, in runs of `run_images`, with the names of the products."""
        runs = [self.render_images(run, scene) for run, scene in split_runs(count, scenes, run_images)]
        return torch.cat([images for images, _ in runs]), [name for _, names in runs for name in names]

    def label_captures(self, max_captures: int) -> int:
        """Give captured images their true labels and return the number labelled."""
        captures = self.list_drift_captures(max_captures)
        for capture in captures:
            pixels = np.asarray(Image.open(io.BytesIO(self.request_service("GET", f"/capture/{capture.id}"))))
            name = self.label_by_pixels[pixels.transpose(2, 0, 1).copy().tobytes()]
            self.request_service("POST", f"/capture/{capture.id}/label", json.dumps({"label": name}).encode())
        return len(captures)
