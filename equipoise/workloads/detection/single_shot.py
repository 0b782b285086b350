"""Answers of torchvision's SSD for whole batches, by tensors of fixed shapes: what a bundle's program can hold.

torchvision's own pass goes from picture to picture, with as many boxes as there happen to be.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from equipoise.boxes.matching import MAX_ANSWERS
from equipoise.workloads.detection.box_suppression import suppress_boxes

MAX_CANDIDATES = 300  # boxes of a picture from which answers are chosen, the ones with the highest scores


def find_default_boxes(detector: Any) -> Tensor:
    """Return the default boxes of an SSD (boxes, 4) as left, top, right and bottom in pixels of its input."""
    width, height = detector.transform.fixed_size
    weight = next(detector.parameters())
    was_training = detector.training
    with torch.no_grad():
        maps = detector.eval().backbone(weight.new_zeros(1, 3, height, width)).values()
        detector.train(was_training)
        grids = [[*features.shape[-2:]] for features in maps]
        centres = detector.anchor_generator._grid_default_boxes(grids, [height, width], weight.dtype).to(weight.device)
    middle, half = centres[:, :2], centres[:, 2:] / 2
    corners: Tensor = torch.cat([middle - half, middle + half], 1) * centres.new_tensor([width, height] * 2)
    return corners


def find_with_ssd(detector: Any, default_boxes: Tensor, pictures: Tensor) -> Tensor:
    """Return the answers of an SSD (n, MAX_ANSWERS, 6): x, y, width, height, score and class, -1 if unused."""
    width, height = detector.transform.fixed_size
    resized = F.interpolate(pictures, size=(height, width), mode="bilinear", align_corners=False)
    outputs = detector.head([*detector.backbone(resized).values()])
    scores, places = F.softmax(outputs["cls_logits"], -1)[..., 1:].flatten(1).topk(MAX_CANDIDATES)  # 0: background
    num_classes = outputs["cls_logits"].shape[2] - 1
    scores = scores * (scores > detector.score_thresh).to(scores.dtype)
    labels, places = places % num_classes, places // num_classes
    codes = outputs["bbox_regression"].gather(1, places[..., None].expand(-1, -1, 4))
    corners = decode_corners(codes, F.embedding(places, default_boxes), detector.box_coder)
    limits = corners.new_tensor([width, height] * 2)
    corners = torch.minimum(corners.clamp(min=0), limits)
    stays = suppress_boxes(corners, scores, labels, detector.nms_thresh)
    scores, best = (scores * stays).topk(MAX_ANSWERS)
    corners = corners.gather(1, best[..., None].expand(-1, -1, 4))
    corners = corners * corners.new_tensor([pictures.shape[3] / width, pictures.shape[2] / height] * 2)
    sides = corners[..., 2:] - corners[..., :2]
    found = torch.cat(
        [corners[..., :2], sides, scores[..., None], labels.gather(1, best)[..., None].to(sides.dtype)], 2
    )
    unused = found.new_tensor([0.0, 0.0, 0.0, 0.0, 0.0, -1.0])
    return torch.where((scores > 0)[..., None], found, unused)


def decode_corners(codes: Tensor, boxes: Tensor, box_coder: Any) -> Tensor:
    """Return the corners of boxes (n, boxes, 4) whose differences to default boxes are `codes`."""
    scaled = codes / codes.new_tensor(box_coder.weights)
    sides = boxes[..., 2:] - boxes[..., :2]
    middle = boxes[..., :2] + sides / 2 + scaled[..., :2] * sides
    half = scaled[..., 2:].clamp(max=box_coder.bbox_xform_clip).exp() * sides / 2
    return torch.cat([middle - half, middle + half], -1)
