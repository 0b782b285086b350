"""Detector of things by their centres: one map of centres for each class, and the sides of a box at each place.

After Zhou, Wang and Kraehenbuehl, "Objects as Points" (2019), https://arxiv.org/abs/1904.07850. Neither anchors nor
non-maximum suppression: peaks of the map are the answers. Groups of channels are normalized within each picture, so
that a picture's outputs do not depend on its batch.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from equipoise.boxes.matching import MAX_ANSWERS

STRIDE = 8  # pixels of the picture for each place of the maps
STEM_PIXELS, STEM_CHANNELS = (
    4,
    24,
)  # patches of 4 x 4 pixels: as exact as two convolutions, in three quarters of the time
DEFAULT_BLOCKS, DEFAULT_WIDTH = 1, 64  # as exact as 72 within the spread of seeds, a quarter faster
PRIOR = 0.02  # score of a new model everywhere: most places are no centre


def conv_block(in_channels: int, out_channels: int, stride: int = 1) -> nn.Sequential:
    """Return a 3x3 convolution, its normalization and ReLU."""
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False),
        nn.GroupNorm(out_channels // 8, out_channels),
        nn.ReLU(),
    )


class ResidualBlock(nn.Module):
    """Two convolutions whose result is added to their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv_block(channels, channels),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.GroupNorm(channels // 8, channels),
        )
        nn.init.zeros_(self.body[2].weight)  # type: ignore[arg-type]  # of the last norm: begin as an identity

    def forward(self, features: Tensor) -> Tensor:
        return F.relu(features + self.body(features))


class CenterModel(nn.Module):
    """Small detector: pictures (n, 3, height, width) in, maps of centres and boxes out, and answers in evaluation.

    `heatmap` (n, classes, rows, columns) are logits, and `sides` (n, 4, rows, columns) the distances from the middle of
    a place to the left, top, right and bottom of its box, in pixels.
    """

    def __init__(
        self, num_classes: int, width: int = DEFAULT_WIDTH, blocks: int = DEFAULT_BLOCKS, max_answers: int = MAX_ANSWERS
    ) -> None:
        super().__init__()
        self.max_answers = max_answers
        self.body = nn.Sequential(
            nn.Conv2d(3, STEM_CHANNELS, STEM_PIXELS, STEM_PIXELS),
            nn.ReLU(),
            conv_block(STEM_CHANNELS, width, STRIDE // STEM_PIXELS),
            *(ResidualBlock(width) for _ in range(blocks)),
            conv_block(width, width),
        )
        self.sides = nn.Conv2d(width, 4, 1)
        self.head = nn.Conv2d(width, num_classes, 1)  # the last layer: its rows are reused by class in fine-tuning
        with torch.no_grad():
            for layer, bias in ((self.sides, 1.0), (self.head, math.log(PRIOR / (1 - PRIOR)))):  # sides of ten pixels
                layer.weight.mul_(0.1)
                layer.bias.fill_(bias)  # type: ignore[union-attr]  # both have one
        self.to(memory_format=torch.channels_last)

    def forward(self, pictures: Tensor) -> dict[str, Any]:
        features = self.body(pictures)
        heatmap, sides = self.head(features), F.softplus(self.sides(features)) * STRIDE
        outputs = {"heatmap": heatmap, "sides": sides}
        if not self.training:
            outputs["detections"] = pick_peaks(heatmap, sides, self.max_answers)
        return outputs


def pick_peaks(heatmap: Tensor, sides: Tensor, count: int) -> Tensor:
    """Return the highest peaks of maps of centres as answers (n, count, 6): x, y, width, height, score and class."""
    _, classes, rows, columns = heatmap.shape
    scores = heatmap.sigmoid()
    is_peak = scores >= F.max_pool2d(scores, 3, 1, 1)
    best, place = (scores * is_peak).flatten(1).topk(min(count, classes * rows * columns))
    label, cell = place // (rows * columns), place % (rows * columns)
    left, top, right, bottom = sides.flatten(2).gather(2, cell[:, None].expand(-1, 4, -1)).unbind(1)
    x, y = (cell % columns + 0.5) * STRIDE, (cell // columns + 0.5) * STRIDE
    return torch.stack([x - left, y - top, left + right, top + bottom, best, label.to(best.dtype)], 2)
