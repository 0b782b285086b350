"""A published model as a folder, which predicts without the code that trained it.

A bundle holds only JSON, safetensors, ONNX and NumPy arrays: loading it cannot run code that its author chose.
"""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.bundle.engines import ENGINES
from equipoise.bundle.folder import REFERENCE_FILE
from equipoise.bundle.manifest import Manifest
from equipoise.bundle.tensor_checks import make_zeros, require_probe_outputs
from equipoise.errors import EquipoiseError

MAX_REFERENCE_BYTES = 1 << 30  # after decompression
INPUT_PREFIX = "input."
"""in front of the name of a tensor, in the names of the arrays with the inputs of a few examples"""


class Bundle:
    """Published model of any kind of data, verified and loaded, ready to predict.

    `load_bundle` returns the class of its kind, which has the methods that predict.

    Attributes:
        folder: folder that the bundle was loaded from
        manifest: contents of bundle.json
        kind: kind of data that the model takes: image, table or text
        name: name of the model
        version: version of the bundle, by which requests and verdicts name it
        classes: class names in the order of the scores; empty if the model does not classify
        engine_name: engine that predicts
        run_engine: function that maps the input tensors to the output tensors, which the manifest declares
    """

    def __init__(self, folder: Path, manifest: Manifest, engine_name: str | None = None) -> None:
        """Load the verified bundle in `folder`; refuse one that does not run.

        `engine_name` overrides the engine chosen at publication (the fastest), for comparisons.
        """
        self.folder, self.manifest, self.kind = folder, manifest, manifest.kind
        self.name, self.version, self.classes = manifest.name, manifest.version, manifest.classes
        self.engine_name = engine_name or manifest.engine.name
        if self.engine_name not in ENGINES:
            raise EquipoiseError(
                "engine-unknown",
                f"cannot load {folder}: unknown engine {self.engine_name!r}",
                f"choose one of: {', '.join(ENGINES)}",
            )
        try:
            self.run_engine = ENGINES[self.engine_name](folder)
            for count in (1, 2):
                zeros = [make_zeros(spec, count) for spec in manifest.inputs]
                require_probe_outputs(self.run_engine(*zeros), manifest.outputs, count)
        except Exception as error:  # an engine may raise anything for a program that does not fit the manifest
            kind = "" if isinstance(error, EquipoiseError) else f"{type(error).__name__}: "
            reason = next(iter(str(error).strip().splitlines()), "")
            raise EquipoiseError(
                "bundle-invalid", f"cannot run {folder}: {kind}{reason}", "publish it again"
            ) from error

    def load_reference_arrays(self) -> dict[str, NDArray[Any]]:
        """Load the arrays of the reference split: what the model predicted on examples kept for comparison."""
        path = self.folder / REFERENCE_FILE
        try:
            with zipfile.ZipFile(path) as archive:
                if sum(member.file_size for member in archive.infolist()) > MAX_REFERENCE_BYTES:
                    raise EquipoiseError("bundle-invalid", f"it decompresses to more than {MAX_REFERENCE_BYTES} bytes")
            with np.load(path, allow_pickle=False) as arrays:
                return dict(arrays)
        except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:
            raise EquipoiseError("bundle-invalid", f"cannot read {path}: {error}", "publish the bundle again") from None

    def load_kept_examples(self, max_count: int) -> tuple[tuple[Tensor, ...], NDArray[Any]]:
        """Load the inputs of some examples of the reference, and what the model returned for them at publication."""
        arrays = self.load_reference_arrays()
        inputs = tuple(torch.from_numpy(array[:max_count]) for array in self.select_input_arrays(arrays))
        return inputs, arrays[self.manifest.outputs[0].name][arrays["places"][:max_count]]

    def select_input_arrays(self, arrays: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the arrays of reference.npz that hold the inputs of examples, in the order of the tensors."""
        return [arrays[f"{INPUT_PREFIX}{spec.name}"] for spec in self.manifest.inputs]
