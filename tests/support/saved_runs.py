"""Weights of a model as a finished run keeps them."""

import json
from collections.abc import Sequence
from pathlib import Path

from safetensors.torch import save_file
from torch import nn


def save_run_weights(folder: Path, model: nn.Module, classes: Sequence[str]) -> None:
    """Save the weights of a model with its classes, for --init-from."""
    folder.mkdir(exist_ok=True)
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", {"classes": json.dumps(list(classes))})
