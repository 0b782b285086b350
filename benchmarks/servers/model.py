"""What every peer is given: the same network with the same weights, and the plainest way from a PNG to its scores."""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file

from equipoise.workloads.models import model_factory

torch.set_num_threads(1)
RUN, MODEL = "BENCH_RUN", "BENCH_MODEL"


class Net:
    """Eager PyTorch, as a training run left it."""

    def __init__(self) -> None:
        name, channels, size = os.environ[MODEL].split(":")
        self.mode = "L" if channels == "1" else "RGB"
        self.network = model_factory(name, 10, int(channels), int(size))().eval()
        self.network.load_state_dict(load_file(Path(os.environ[RUN], "model.safetensors")))

    def decode(self, data: bytes) -> torch.Tensor:
        """A picture as numbers around zero."""
        with Image.open(io.BytesIO(data)) as image:
            return self.numbers(image)

    def numbers(self, image: Image.Image) -> torch.Tensor:
        """The same of what is decoded."""
        tensor = torch.from_numpy(np.array(image.convert(self.mode)))
        return self.scaled(tensor[None] if tensor.ndim == 2 else tensor.permute(2, 0, 1))

    def scaled(self, pixels: torch.Tensor) -> torch.Tensor:
        """The same of pixels."""
        return (pixels.float() / 255 - 0.45) / 0.25

    @torch.inference_mode()
    def scores(self, pictures: list[torch.Tensor]) -> list[list[float]]:
        """Of several pictures at once."""
        found: list[list[float]] = torch.softmax(self.network(torch.stack(pictures)), 1).tolist()
        return found

    def reply(self, scores: list[float]) -> dict[str, Any]:
        """What a client reads."""
        return {"label": str(scores.index(max(scores))), "scores": scores}
