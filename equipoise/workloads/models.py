"""Models by name: LeNet and every classifier of torchvision, adapted to classes, channels and size of the images."""

import importlib
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from equipoise.errors import EquipoiseError
from equipoise.formatting import first_error_line

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # as published weights expect


class LeNet(nn.Module):
    """LeNet-5 as in textbooks: two convolutions, average pooling, three dense layers; ReLU instead of sigmoid."""

    def __init__(self, num_classes: int, in_channels: int, image_size: int) -> None:
        super().__init__()
        side = (image_size // 2 - 4) // 2  # pixels per side after the second pooling
        if side < 1:
            raise EquipoiseError("model-invalid", f"it needs images of at least 12 pixels per side, got {image_size}")
        self.body = nn.Sequential(
            nn.Conv2d(in_channels, 6, 5, padding=2),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * side * side, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
        )
        self.head = nn.Linear(84, num_classes)
        self.to(memory_format=torch.channels_last)  # saves a tenth to a quarter of the time on a CPU

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(images))
        return logits


def list_model_names() -> list[str]:
    """Return the names that `model_factory` accepts."""
    return ["lenet", *import_torchvision_models().list_models(module=import_torchvision_models())]


def model_factory(name: str, num_classes: int, in_channels: int, image_size: int) -> Callable[[], nn.Module]:
    """Return a function that builds a new model, tested on one image so that a mismatch is found early."""
    if name != "lenet" and name not in list_model_names():
        similar = "".join(f"did you mean {match}? " for match in get_close_matches(name, list_model_names(), 1))
        raise EquipoiseError(
            "model-unknown", f"there is no model {name!r}", f"{similar}choose one of: {', '.join(list_model_names())}"
        )

    def build_model() -> nn.Module:
        if name == "lenet":
            return LeNet(num_classes, in_channels, image_size)
        network: nn.Module = import_torchvision_models().get_model(
            name, weights=None, num_classes=num_classes, **extra_model_kwargs(name, image_size)
        )
        return network if in_channels == 3 else adapt_input_channels(network, in_channels)

    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            build_model().eval()(torch.zeros(1, in_channels, image_size, image_size))
    except (RuntimeError, ValueError, AssertionError) as error:  # torch's and torchvision's, or an EquipoiseError
        reason = first_error_line(error)
        raise EquipoiseError(
            "model-invalid", f"model {name} does not take {in_channels}x{image_size}x{image_size} images: {reason}"
        ) from error
    return build_model


def import_torchvision_models() -> Any:
    """Import torchvision's models, which takes seconds that LeNet does not need."""
    return importlib.import_module("torchvision.models")


def extra_model_kwargs(name: str, image_size: int) -> dict[str, object]:
    """Return the arguments that make a torchvision model a plain classifier of images of this size."""
    if name.startswith("vit_"):
        return {"image_size": image_size}
    if name in ("googlenet", "inception_v3"):
        return {"aux_logits": False, "init_weights": True}  # their auxiliary heads need a loss of their own
    return {}


def adapt_input_channels(network: nn.Module, in_channels: int) -> nn.Module:
    """Replace the first convolution of `network` by one that reads `in_channels` channels."""
    for path, layer in network.named_modules():
        if isinstance(layer, nn.Conv2d):
            convolution = nn.Conv2d(
                in_channels,
                layer.out_channels,
                layer.kernel_size,  # type: ignore[arg-type]  # torch's own attribute is wider than its argument
                stride=layer.stride,  # type: ignore[arg-type]
                padding=layer.padding,  # type: ignore[arg-type]
                bias=layer.bias is not None,
            )
            network.set_submodule(path, convolution)
            return network
    raise EquipoiseError("model-invalid", f"it has no convolution to adapt to {in_channels} channels")
