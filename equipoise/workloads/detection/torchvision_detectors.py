"""Detectors of torchvision by name, with the losses that they compute themselves."""

import importlib
from typing import Any

import torch
from torch import Tensor, nn

from equipoise.boxes.matching import MAX_ANSWERS
from equipoise.errors import EquipoiseError
from equipoise.workloads.detection.single_shot import find_default_boxes, find_with_ssd

CLASSIFIERS = ("roi_heads.box_predictor", "head.classification_head.cls_logits", "head.classification_head")
"""parts of torchvision's detectors that depend on the number of classes: of two stages, of one, and of an SSD"""
DETECTOR_PREFIX = "detector."  # of the names of the weights, in front of those of torchvision
SSDLITE_MEAN = SSDLITE_STD = (0.5, 0.5, 0.5)  # as its published weights expect


class TorchvisionDetector(nn.Module):
    """Detector of torchvision: normalized pictures in, answers out, and in training what its losses are computed from.

    Its losses need the boxes in the middle of its forward pass, to choose the places that it learns from. So in
    training the pass is left to the loss, which has them: see `torchvision_loss`.
    """

    def __init__(self, name: str, num_classes: int, image_size: int) -> None:
        super().__init__()
        sizes = {} if name.startswith("ssd") else {"min_size": image_size, "max_size": image_size}
        self.detector: nn.Module = import_detection_models().__dict__[name](
            weights=None, weights_backbone=None, num_classes=num_classes + 1, **sizes
        )
        transform: Any = self.detector.transform
        transform.image_mean, transform.image_std = [0.0] * 3, [1.0] * 3  # pictures are normalized already
        self.name = name
        parts = {part for part, _ in self.detector.named_modules()}
        self.classifier_name = next(f"{DETECTOR_PREFIX}{part}" for part in CLASSIFIERS if part in parts)
        self.default_boxes = nn.Buffer(
            find_default_boxes(self.detector) if name.startswith("ssd") else torch.empty(0), persistent=False
        )

    def forward(self, pictures: Tensor) -> dict[str, Any]:
        if self.training:
            return {"pictures": pictures, "detector": self.detector}
        if len(self.default_boxes):
            return {"detections": find_with_ssd(self.detector, self.default_boxes, pictures)}
        if torch.compiler.is_exporting():
            raise refuse_export(self.name)
        return {"detections": stack_answers(self.detector(list(pictures)), pictures)}


def refuse_export(name: str) -> EquipoiseError:
    """Return the refusal of a detector whose operators a bundle's program may not run."""
    operators = ["torchvision::nms", *(["torchvision::roi_align"] if "rcnn" in name else [])]
    subject = f"the operator {operators[0]} is" if len(operators) == 1 else f"the operators {', '.join(operators)} are"
    return EquipoiseError(
        "export-failed",
        f"cannot store {name} in a bundle: {subject} not on the list of operators that a bundle may run",
        "train center, ssdlite320_mobilenet_v3_large or ssd300_vgg16 to publish it",
    )


def import_detection_models() -> Any:
    """Import torchvision's detectors, which takes seconds that other models do not need."""
    return importlib.import_module("torchvision.models.detection")


def list_torchvision_detectors() -> list[str]:
    """Return the names of torchvision's detectors."""
    names: list[str] = importlib.import_module("torchvision.models").list_models(module=import_detection_models())
    return names


def require_detector_weights(name: str) -> None:
    """Refuse the published weights of a detector that learned from pictures that were normalized in another way."""
    if name == "ssd300_vgg16":
        raise EquipoiseError(
            "pretrained-unavailable",
            f"cannot start {name} from torchvision's weights: they are for pictures of another range of values",
            "train ssdlite320_mobilenet_v3_large, or start from a run or a bundle of the same model",
        )


def rename_detector_weights(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return torchvision's weights of a model by the names that they have here, where a detector is part of another."""
    is_detector = name in list_torchvision_detectors()
    return {f"{DETECTOR_PREFIX}{key}": value for key, value in tensors.items()} if is_detector else tensors


def stack_answers(answers: list[dict[str, Tensor]], pictures: Tensor) -> Tensor:
    """Return the answers of torchvision as (n, 100, 6): x, y, width, height, score and class, -1 if unused."""
    unused = pictures.new_tensor([0.0, 0.0, 0.0, 0.0, 0.0, -1.0])
    rows = []
    for answer in answers:
        best = answer["scores"].topk(min(MAX_ANSWERS, len(answer["scores"]))).indices
        corners, labels = answer["boxes"][best], answer["labels"][best] - 1  # 0 is the background
        sides = corners[:, 2:] - corners[:, :2]
        found = torch.cat([corners[:, :2], sides, answer["scores"][best, None], labels[:, None]], 1)
        rows.append(torch.cat([found, unused.expand(MAX_ANSWERS - len(best), 6)]))
    return torch.stack(rows)


def torchvision_loss(outputs: Any, targets: Tensor) -> Tensor:
    """Return the sum of the losses of torchvision's detector; 0 in evaluation, where it computes none."""
    if "detector" not in outputs:
        nothing: Tensor = outputs["detections"].sum() * 0
        return nothing
    losses = outputs["detector"](list(outputs["pictures"]), [unstack_boxes(boxes) for boxes in targets])
    return torch.stack([*losses.values()]).sum()


def unstack_boxes(boxes: Tensor) -> dict[str, Tensor]:
    """Return the boxes of a picture as torchvision takes them, without crowds: corners, and labels from 1 on."""
    used = boxes[(boxes[:, 0] >= 0) & (boxes[:, 5] == 0)]
    return {"boxes": torch.cat([used[:, 1:3], used[:, 1:3] + used[:, 3:5]], 1), "labels": used[:, 0].long() + 1}
