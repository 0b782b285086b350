"""Engines that run a published model: each takes the input tensors of its program and returns the output tensors."""

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from equipoise.bundle.folder import ONNX_FILE, PROGRAM_FILE, WEIGHTS_FILE
from equipoise.bundle.program import load_program
from equipoise.storage.atomic import read_json

Engine = Callable[..., tuple[Tensor, ...]]
"""maps input tensors to output tensors, such as uint8 images to logits and features"""


class EagerEngine:
    """Engine that runs the program with eager PyTorch, operator by operator."""

    def __init__(self, folder: Path, use_onednn: bool = True) -> None:
        self.program = load_program(read_json(folder / PROGRAM_FILE), load_file(folder / WEIGHTS_FILE))
        self.use_onednn = use_onednn

    @torch.inference_mode()
    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        with self._kernel_context():
            return tuple(self.program(*inputs))

    def _kernel_context(self) -> AbstractContextManager[None]:
        return nullcontext() if self.use_onednn else without_onednn()


class OnnxEngine:
    """Engine that runs an ONNX model with onnxruntime on one thread, without spinning threads."""

    def __init__(self, model: Path | bytes) -> None:
        """Load a model from its file, or from the bytes of one."""
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # otherwise it reports each loaded model to its vendor
        onnxruntime: Any = importlib.import_module(
            "onnxruntime"
        )  # takes half a second, which other engines need not pay
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        source = str(model) if isinstance(model, Path) else model
        self.session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        self.input_names = [value.name for value in self.session.get_inputs()]

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        arrays = {name: tensor.numpy() for name, tensor in zip(self.input_names, inputs, strict=True)}
        return tuple(map(torch.from_numpy, self.session.run(None, arrays)))


ENGINES: dict[str, Callable[[Path], Engine]] = {
    "eager": EagerEngine,
    "eager without oneDNN": lambda folder: EagerEngine(folder, use_onednn=False),
    "onnxruntime": lambda folder: OnnxEngine(folder / ONNX_FILE),
}


@contextmanager
def without_onednn() -> Iterator[None]:
    """Use PyTorch's own kernels inside the context: oneDNN takes ten times as long for a tiny convolution."""
    was_enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(was_enabled)
