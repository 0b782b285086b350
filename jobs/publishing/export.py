"""The programs of a model: as engines load them, as ONNX, and as native code for comparison."""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from equipoise.bundle.engines import ONNX_FILE, PROGRAM_FILE, WEIGHTS_FILE, Engine, InferenceModule
from equipoise.bundle.graph import collect_weights, export_model, serialize_graph
from equipoise.storage.atomic import write_json


def export_programs(inference_module: InferenceModule, example_images: Tensor, folder: Path) -> None:
    """Write the model's programs and weights."""
    try:
        found = export_model(inference_module, example_images)
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"the model cannot be exported ({type(error).__name__}: {reason})") from error
    write_json(folder / PROGRAM_FILE, serialize_graph(found))
    save_file(collect_weights(found), folder / WEIGHTS_FILE)
    (folder / WEIGHTS_FILE).chmod(0o644)  # safetensors keeps files to their owner
    with silence_exporters():
        try:
            onnx: Any = torch.onnx.export(found, (), None, dynamo=True, verbose=False)
            onnx.save(str(folder / ONNX_FILE))
        except Exception as error:  # the exporter raises what it likes; the other engines do without it
            (folder / ONNX_FILE).unlink(missing_ok=True)
            print(
                f"note: the model is not in ONNX ({type(error).__name__}: {str(error).strip()[:200]})", file=sys.stderr
            )


@contextmanager
def silence_exporters() -> Iterator[None]:
    """Silence the exporters' remarks on their own insides."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    logging.getLogger("onnxscript").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def compile_aotinductor(inference_module: InferenceModule, example_images: Tensor, scratch: Path) -> Engine:
    """Compile the model to native code by AOTInductor, for the comparison."""
    with silence_exporters():
        path = torch._inductor.aoti_compile_and_package(
            export_model(inference_module, example_images[:2]), package_path=str(scratch / "model.pt2")
        )
        run = torch._inductor.aoti_load_package(path)

    def engine(batch: Tensor) -> tuple[Tensor, Tensor]:
        with torch.inference_mode():
            logits, features = run(batch)
        return logits, features

    return engine
