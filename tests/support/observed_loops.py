"""Small training loops to observe, as somebody writes them who has never met us."""

import json
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from equipoise.profiling.profile_report import LayerWork, ProfileReport

INPUTS, CLASSES, BATCH = 6, 3, 8
SMALL_MODEL_OPERATIONS = {
    "0": (2 * INPUTS * 8, 2 * INPUTS * 8),  # nobody needs the gradient of its inputs
    "1": (0, 0),
    "2": (2 * 8 * CLASSES, 2 * 2 * 8 * CLASSES),
}
"""operations of both passes of an example through each layer of the small model"""


def build_small_model(dtype: torch.dtype = torch.float64) -> nn.Module:
    """Build a small classifier with the same weights each time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.Tanh(), nn.Linear(8, CLASSES)).to(dtype)


def draw_batches(count: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> list[tuple[Tensor, Tensor]]:
    """Draw batches of inputs and labels."""
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(BATCH, INPUTS, generator=generator, dtype=dtype),
            torch.randint(CLASSES, (BATCH,), generator=generator),
        )
        for _ in range(count)
    ]


def take_steps(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[tuple[Tensor, Tensor]], accumulation: int = 1
) -> None:
    """Train on each batch, stepping after every `accumulation` of them."""
    for index, (inputs, labels) in enumerate(batches):
        (F.cross_entropy(model(inputs), labels) / accumulation).backward()
        if (index + 1) % accumulation == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()


def compute_gradient(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the gradient of the mean loss of a batch as one vector."""
    inputs, labels = batch
    gradients = torch.autograd.grad(F.cross_entropy(model(inputs), labels), list(model.parameters()))
    return torch.cat([gradient.flatten() for gradient in gradients])


def read_profile(folder: Path) -> ProfileReport:
    """Read the profile of an observed run."""
    return ProfileReport.from_json(json.loads((folder / "profile.json").read_text()))


def list_operations(layers: tuple[LayerWork, ...]) -> dict[str, tuple[float, float]]:
    """Return the operations of both passes of an example by the last part of each layer's name."""
    return {layer.name.rpartition(".")[2]: (layer.forward_flop, layer.backward_flop) for layer in layers}
