"""Models by name: LeNet, and every classifier of torchvision, fitted to the pictures at hand."""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from equipoise.formatting import first_error_line


class LeNet(nn.Module):
    """LeNet-5 of the textbooks: two convolutions, average pooling, three dense layers; ReLU for sigmoid."""

    def __init__(self, num_classes: int, in_channels: int, image_size: int) -> None:
        super().__init__()
        left = (image_size // 2 - 4) // 2  # pixels a side after the second pooling
        if left < 1:
            raise ValueError(f"needs pictures of 12 pixels a side at least, got {image_size}")
        self.body = nn.Sequential(
            nn.Conv2d(in_channels, 6, 5, padding=2),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * left * left, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
        )
        self.head = nn.Linear(84, num_classes)
        self.to(memory_format=torch.channels_last)  # a tenth to a quarter less time on a CPU

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(images))
        return logits


def list_model_names() -> list[str]:
    """Names that `model_factory` knows."""
    return ["lenet", *import_torchvision_models().list_models(module=import_torchvision_models())]


def model_factory(name: str, num_classes: int, in_channels: int, image_size: int) -> Callable[[], nn.Module]:
    """A function that makes the model anew, tried once on one picture so that a misfit is known at once."""
    if name != "lenet" and name not in list_model_names():
        raise ValueError(f"no model {name!r}; there are: {', '.join(list_model_names())}")

    def made() -> nn.Module:
        if name == "lenet":
            return LeNet(num_classes, in_channels, image_size)
        network: nn.Module = import_torchvision_models().get_model(
            name, weights=None, num_classes=num_classes, **extra_model_kwargs(name, image_size)
        )
        return network if in_channels == 3 else adapt_input_channels(network, in_channels)

    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            shape = made().eval()(torch.zeros(1, in_channels, image_size, image_size)).shape
    except (RuntimeError, ValueError, AssertionError) as error:
        why = first_error_line(error)
        raise ValueError(
            f"model {name} does not take {in_channels}x{image_size}x{image_size} pictures: {why}"
        ) from error
    if tuple(shape) != (1, num_classes):
        raise ValueError(f"model {name} answers with shape {tuple(shape)}, not with {num_classes} scores a picture")
    return made


def import_torchvision_models() -> Any:
    """torchvision's models, whose import takes seconds that LeNet need not pay."""
    return importlib.import_module("torchvision.models")


def extra_model_kwargs(name: str, image_size: int) -> dict[str, object]:
    """What some models must be told so that they are plain classifiers of pictures of this size."""
    if name.startswith("vit_"):
        return {"image_size": image_size}
    if name in ("googlenet", "inception_v3"):
        return {"aux_logits": False, "init_weights": True}  # their second heads are for a loss of their own
    return {}


def adapt_input_channels(network: nn.Module, in_channels: int) -> nn.Module:
    """`network` with its first convolution reading `channels` instead of three."""
    for path, layer in network.named_modules():
        if isinstance(layer, nn.Conv2d):
            fresh = nn.Conv2d(
                in_channels,
                layer.out_channels,
                layer.kernel_size,  # type: ignore[arg-type]  # torch's own attribute is wider than its argument
                stride=layer.stride,  # type: ignore[arg-type]
                padding=layer.padding,  # type: ignore[arg-type]
                bias=layer.bias is not None,
            )
            network.set_submodule(path, fresh)
            return network
    raise ValueError("it has no convolution to adapt to the channels")
