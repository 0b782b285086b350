"""Modules that are published in place of a model: with what it needs in front, and its features beside its outputs."""

from typing import Any

import torch
from torch import Tensor, nn


class FeatureModule(nn.Module):
    """Model that returns its features, the input of its last layer, beside its outputs."""

    def __init__(self, model: nn.Module, head_name: str | None) -> None:
        super().__init__()
        self.model = model
        self.captured_features: list[Tensor] = []
        if head_name:
            self.model.get_submodule(head_name).register_forward_pre_hook(self._capture_features)

    def _capture_features(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.captured_features[:] = inputs[:1]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs and the features; the outputs themselves are the features of a model without a head."""
        outputs = self.model(*inputs)
        return outputs, self.take_features(outputs)

    def take_features(self, otherwise: Tensor) -> Tensor:
        """Return the features that the last call has captured, or `otherwise` without any: (examples, features)."""
        features = self.captured_features.pop() if self.captured_features else otherwise
        if features.ndim == 4:
            features = features.mean((2, 3))
        return features[:, None] if features.ndim == 1 else features


class InferenceModule(FeatureModule):
    """Model of images with its normalization in front, which returns its features beside the logits."""

    def __init__(self, model: nn.Module, head_name: str | None, mean: Any, std: Any) -> None:
        super().__init__(model, head_name)
        std_column = torch.tensor(std, dtype=torch.float64).view(-1, 1, 1)
        mean_column = torch.tensor(mean, dtype=torch.float64).view(-1, 1, 1)
        self.gain = nn.Buffer((1 / (255 * std_column)).float())
        self.offset = nn.Buffer((-mean_column / std_column).float())

    def forward(self, *pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and features of uint8 images."""
        return super().forward(self.normalize(pictures[0]))

    def normalize(self, pictures: Tensor) -> Tensor:
        """Return uint8 images as the model takes them."""
        return pictures.float() * self.gain + self.offset


class DetectionModule(InferenceModule):
    """Detector with its normalization in front, which returns scores, boxes, labels and features.

    In evaluation the model returns a dictionary whose `detections` (images, boxes, 6) are left, top, width, height,
    score and class of its answers, by falling score.
    """

    def forward(self, *pictures: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]  # it has further outputs
        """Return scores (images, boxes), boxes (images, boxes, 4), labels (images, boxes) and features."""
        outputs = self.model(self.normalize(pictures[0]))["detections"]
        scores, boxes = outputs[..., 4], outputs[..., :4]
        features = self.take_features(scores)
        return scores.contiguous(), boxes.contiguous(), outputs[..., 5].long(), features
