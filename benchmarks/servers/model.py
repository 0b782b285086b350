"""The model that all peers serve: one network with one set of weights, and the plainest path from a PNG to scores."""

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
RUN_VARIABLE, MODEL_VARIABLE = "BENCH_RUN", "BENCH_MODEL"


class PeerModel:
    """Eager PyTorch model with the weights that a training run saved."""

    def __init__(self) -> None:
        name, channels, size = os.environ[MODEL_VARIABLE].split(":")
        self.mode = "L" if channels == "1" else "RGB"
        self.network = model_factory(name, 10, int(channels), int(size))().eval()
        self.network.load_state_dict(load_file(Path(os.environ[RUN_VARIABLE], "model.safetensors")))

    def decode_image(self, data: bytes) -> torch.Tensor:
        """Decode an image file to a normalized tensor."""
        with Image.open(io.BytesIO(data)) as image:
            return self.convert_image(image)

    def convert_image(self, image: Image.Image) -> torch.Tensor:
        """Convert a decoded image to a normalized tensor."""
        tensor = torch.from_numpy(np.array(image.convert(self.mode)))
        return self.normalize(tensor[None] if tensor.ndim == 2 else tensor.permute(2, 0, 1))

    def normalize(self, pixels: torch.Tensor) -> torch.Tensor:
        """Scale uint8 pixels to about zero mean and unit variance."""
        return (pixels.float() / 255 - 0.45) / 0.25

    @torch.inference_mode()
    def predict_scores(self, images: list[torch.Tensor]) -> list[list[float]]:
        """Return the class probabilities of several images, computed as one batch."""
        scores: list[list[float]] = torch.softmax(self.network(torch.stack(images)), 1).tolist()
        return scores

    def build_reply(self, scores: list[float]) -> dict[str, Any]:
        """Build the JSON reply with the predicted label and all scores."""
        return {"label": str(scores.index(max(scores))), "scores": scores}
