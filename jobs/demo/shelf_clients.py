"""Simulated clients of a detector: they send rendered shelves and know the box of each product in them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from equipoise.boxes.matching import match_answers
from equipoise.boxes.mean_average_precision import compute_precision, match_pictures
from equipoise.type_aliases import FloatArray
from equipoise.workloads.detection.shelf_renderer import render_shelves
from equipoise.workloads.vending.products import MACHINE_PRODUCTS
from equipoise.workloads.vending.renderer import Scene
from jobs.demo.service_clients import JudgedAnswers, ServiceClients, split_runs

SHELF_PIXELS = 96
PRODUCT_NAMES = [product.name for product in MACHINE_PRODUCTS]
UNUSED_ANSWER = (0.0, 0.0, 1.0, 1.0, 0.0, -1.0)


@dataclass
class ShelfClients(ServiceClients):
    """Clients who photograph a whole shelf."""

    boxes_by_pixels: dict[bytes, FloatArray] = field(default_factory=dict)
    """true boxes (products, 6) of every picture sent, by its pixels: class, x, y, width, height, no crowd"""

    def send_and_judge(self, count: int, scenes: Sequence[Scene], run_images: int) -> JudgedAnswers:
        """Send new pictures under these lights in turn, and compare the boxes of the answers with the true ones."""
        runs = [self.render_images(run, scene) for run, scene in split_runs(count, scenes, run_images)]
        images, targets = (torch.cat(parts) for parts in zip(*runs, strict=True))
        return judge_boxes(pack_answers(self.predict_images(images)), targets.double().numpy())

    def render_images(self, count: int, scene: Scene | None = None) -> tuple[Tensor, Tensor]:
        """Render new pictures and return them with the boxes (count, 6, 6) of the products in them."""
        indices = np.arange(self.rendered_count, self.rendered_count + count)
        self.rendered_count += count
        images, targets = render_shelves(MACHINE_PRODUCTS, indices, self.seed, SHELF_PIXELS, scene)
        for image, boxes in zip(images, targets.double().numpy(), strict=True):
            self.boxes_by_pixels[image.numpy().tobytes()] = boxes[boxes[:, 0] >= 0]
        return images, targets


def pack_answers(answers: Sequence[dict[str, Any] | None]) -> FloatArray:
    """Return answers as an array (pictures, boxes, 6): x, y, width, height, score and class."""
    most = max((len(answer["boxes"]) for answer in answers if answer), default=0)
    packed = np.tile(np.array(UNUSED_ANSWER), (len(answers), max(most, 1), 1))
    for row, answer in zip(packed, answers, strict=True):
        for place, box in enumerate(answer["boxes"] if answer else ()):
            sides = [box[name] for name in ("x", "y", "width", "height", "score")]
            row[place] = [*sides, PRODUCT_NAMES.index(box["label"])]
    return packed


def judge_boxes(answers: FloatArray, targets: FloatArray) -> JudgedAnswers:
    """Judge the answers to pictures: one is right if every product was found, as what it is, and nothing else."""
    labels, matched, _, is_counted = match_answers(answers, targets)
    is_answer, is_product = labels >= 0, is_counted[..., 0]
    is_found = matched[..., 0, 0] & is_answer  # at an overlap of one half
    right = (is_found.sum(1) == is_product.sum(1)) & (is_answer.sum(1) == is_product.sum(1))
    precision = compute_precision(match_pictures(answers, targets)).overall
    return JudgedAnswers(right=int(right.sum()), average_precision=float(precision))
