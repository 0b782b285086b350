"""Export a model's programs: as safe JSON, as ONNX, and as native code for comparison."""

import logging
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.export import ExportedProgram

from equipoise.bundle.engines import Engine
from equipoise.bundle.folder import ONNX_FILE, PROGRAM_FILE, WEIGHTS_FILE
from equipoise.bundle.graph import collect_weights, export_model, find_output_names, serialize_graph
from equipoise.errors import EquipoiseError
from equipoise.formatting import first_error_line, make_printable
from equipoise.storage.atomic import write_json
from equipoise.storage.path_errors import DISK_FULL_ERRNOS


def export_programs(
    model: nn.Module,
    example: Tensor | Sequence[Tensor],
    folder: Path,
    keywords: Mapping[str, Any] | None = None,
    *,
    onnx_inputs: Sequence[str] | None = ("images",),
    onnx_outputs: Sequence[str] | None = ("logits", "features"),
) -> None:
    """Write the model's programs and weights to a folder; a model that ONNX cannot express goes without it.

    `onnx_inputs` and `onnx_outputs` name the tensors of model.onnx; None takes the names of the model's arguments and
    of its dictionary of outputs.
    """
    try:
        program = export_model(model, example, keywords)
    except EquipoiseError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {first_error_line(error, 'no message')}"
        remedy = "set use_cache = False in its config" if "Cache" in reason else ""
        raise EquipoiseError("export-failed", f"cannot export the model: {reason}", remedy) from error
    write_json(folder / PROGRAM_FILE, serialize_graph(program))
    # save_file raises an error of its own on a full disk, and makes files readable by their owner alone
    (folder / WEIGHTS_FILE).write_bytes(save(collect_weights(program)))
    write_onnx(program, folder / ONNX_FILE, onnx_inputs, onnx_outputs or find_output_names(program))


def write_onnx(
    program: ExportedProgram, path: Path, input_names: Sequence[str] | None, output_names: Sequence[str] | None
) -> None:
    """Write a program as ONNX, or a note that it cannot be expressed."""
    with silence_exporters():
        try:
            onnx: Any = torch.onnx.export(
                program,
                (),
                None,
                dynamo=True,
                verbose=False,
                input_names=input_names,
                output_names=output_names,
            )
            onnx.save(str(path))
        except Exception as error:  # the exporter may raise anything; the other engines work without it
            path.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
                raise
            print(
                f"note: cannot export the model to ONNX: {type(error).__name__}: "
                f"{make_printable(str(error).strip())[:200]}",
                file=sys.stderr,
            )


@contextmanager
def silence_exporters() -> Iterator[None]:
    """Silence the exporters' warnings about their own internals."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    logging.getLogger("onnxscript").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def compile_aotinductor(module: nn.Module, inputs: Sequence[Tensor], scratch: Path) -> Engine:
    """Compile the model to native code with AOTInductor and return it as an engine, for comparison only."""
    with silence_exporters():
        path = torch._inductor.aoti_compile_and_package(
            export_model(module, [tensor[:2] for tensor in inputs]), package_path=str(scratch / "model.pt2")
        )
        run = torch._inductor.aoti_load_package(path)

    def engine(*batch: Tensor) -> tuple[Tensor, ...]:
        with torch.inference_mode():
            return tuple(run(*batch))

    return engine
