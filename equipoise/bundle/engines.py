"""Engines that run a published model: each takes uint8 images and returns logits and features."""

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from equipoise.bundle.manifest import ONNX_FILE, PROGRAM_FILE, WEIGHTS_FILE
from equipoise.bundle.program import load_program
from equipoise.storage.atomic import read_json

Engine = Callable[[Tensor], tuple[Tensor, Tensor]]
"""maps uint8 images to logits and features"""


class EagerEngine:
    """Engine that runs the program with eager PyTorch, operator by operator."""

    def __init__(self, folder: Path, use_onednn: bool = True) -> None:
        self.program = load_program(read_json(folder / PROGRAM_FILE), load_file(folder / WEIGHTS_FILE))
        self.use_onednn = use_onednn

    @torch.inference_mode()
    def __call__(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        with self._kernel_context():
            logits, features = self.program(pictures)
        return logits, features

    def _kernel_context(self) -> AbstractContextManager[None]:
        return nullcontext() if self.use_onednn else without_onednn()


class OnnxEngine:
    """Engine that runs model.onnx with onnxruntime on one thread, without spinning threads."""

    def __init__(self, folder: Path) -> None:
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # otherwise it reports each loaded model to its vendor
        onnxruntime: Any = importlib.import_module(
            "onnxruntime"
        )  # takes half a second, which other engines need not pay
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(
            str(folder / ONNX_FILE), options, providers=["CPUExecutionProvider"]
        )
        self.input_name = self.session.get_inputs()[0].name

    def __call__(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        logits, features = self.session.run(None, {self.input_name: pictures.numpy()})
        return torch.from_numpy(logits), torch.from_numpy(features)


ENGINES: dict[str, Callable[[Path], Engine]] = {
    "eager": EagerEngine,
    "eager without oneDNN": lambda folder: EagerEngine(folder, use_onednn=False),
    "onnxruntime": OnnxEngine,
}


class InferenceModule(nn.Module):
    """Model with its normalization in front, which returns its features beside the logits."""

    def __init__(self, model: nn.Module, head_name: str | None, mean: Any, std: Any) -> None:
        super().__init__()
        self.model = model
        std_column = torch.tensor(std, dtype=torch.float64).view(-1, 1, 1)
        mean_column = torch.tensor(mean, dtype=torch.float64).view(-1, 1, 1)
        self.gain = nn.Buffer((1 / (255 * std_column)).float())
        self.offset = nn.Buffer((-mean_column / std_column).float())
        self.captured_features: list[Tensor] = []
        if head_name:
            self.model.get_submodule(head_name).register_forward_pre_hook(self._capture_features)

    def _capture_features(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.captured_features[:] = inputs[:1]

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and features of uint8 images."""
        logits = self.model(pictures.float() * self.gain + self.offset)
        features = self.captured_features.pop() if self.captured_features else logits
        return logits, features.mean((2, 3)) if features.ndim == 4 else features


@contextmanager
def without_onednn() -> Iterator[None]:
    """Use PyTorch's own kernels inside the context: oneDNN takes ten times as long for a tiny convolution."""
    was_enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(was_enabled)
