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

from equipoise.bundle import engines
from equipoise.bundle import graph as program
from equipoise.bundle.engines import Engine, Served
from equipoise.storage import atomic as store


def export(served: Served, some: Tensor, folder: Path) -> None:
    """Write the model's programs and weights."""
    try:
        found = program.exported(served, some)
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"the model cannot be exported ({type(error).__name__}: {reason})") from error
    store.write_json(folder / engines.PROGRAM, program.to_json(found))
    save_file(program.weights(found), folder / engines.WEIGHTS)
    (folder / engines.WEIGHTS).chmod(0o644)  # safetensors keeps files to their owner
    with quiet():
        try:
            onnx: Any = torch.onnx.export(found, (), None, dynamo=True, verbose=False)
            onnx.save(str(folder / engines.ONNX))
        except Exception as error:  # the exporter raises what it likes; the other engines do without it
            (folder / engines.ONNX).unlink(missing_ok=True)
            print(
                f"note: the model is not in ONNX ({type(error).__name__}: {str(error).strip()[:200]})", file=sys.stderr
            )


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporters' remarks on their own insides."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    logging.getLogger("onnxscript").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def compiled(served: Served, some: Tensor, scratch: Path) -> Engine:
    """Compile the model to native code by AOTInductor, for the comparison."""
    with quiet():
        path = torch._inductor.aoti_compile_and_package(
            program.exported(served, some[:2]), package_path=str(scratch / "model.pt2")
        )
        run = torch._inductor.aoti_load_package(path)

    def engine(batch: Tensor) -> tuple[Tensor, Tensor]:
        with torch.inference_mode():
            logits, features = run(batch)
        return logits, features

    return engine
