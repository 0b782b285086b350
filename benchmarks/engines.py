"""Time every engine on three models as publishing does: python -m benchmarks.engines.

Weights are random, and running statistics are first fitted to noise: otherwise a deep model's scores are nearly zero.
"""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from equipoise.bundle.engine_benchmark import benchmark_engines, select_engine
from equipoise.bundle.engines import ENGINES
from equipoise.bundle.kinds.inference_module import InferenceModule
from equipoise.hardware import describe_hardware
from equipoise.training.finetune import find_classifier_layer
from equipoise.workloads.models import model_factory
from jobs.cli.engine_report import format_engine_table
from jobs.publishing.export import compile_aotinductor, export_programs

MODELS = [("lenet", 1, 28), ("mobilenet_v3_small", 3, 224), ("resnet18", 3, 224)]
BATCH_IMAGES, SETTLING_PASSES = 32, 20


def main() -> None:
    """Print a table for each model, and the engine that publishing would choose."""
    print(describe_hardware(torch.device("cpu")))
    for name, channels, size in MODELS:
        images = torch.randint(0, 256, (BATCH_IMAGES, channels, size, size), dtype=torch.uint8)
        module = build_settled_module(name, channels, size, images)

        @torch.inference_mode()
        def run_eager(batch: Tensor, module: InferenceModule = module) -> tuple[Tensor, Tensor]:
            logits, features = module(batch)
            return logits, features

        with TemporaryDirectory() as folder, TemporaryDirectory() as scratch:
            export_programs(module, [images[:2]], Path(folder))
            makers = {engine: partial(make, Path(folder)) for engine, make in ENGINES.items()}
            makers["aotinductor"] = partial(compile_aotinductor, module, [images], Path(scratch))
            results = benchmark_engines(makers, run_eager, [images])
        engine, reason = select_engine([result for result in results if result.engine in ENGINES])
        print(f"\n{name}, {channels}x{size}x{size}\n{format_engine_table(results)}\n{engine}: {reason}", flush=True)


def build_settled_module(name: str, channels: int, size: int, images: Tensor) -> InferenceModule:
    """Build a model with its preprocessing and settled running statistics, in evaluation mode."""
    torch.manual_seed(0)
    network = model_factory(name, 10, channels, size)()
    module = InferenceModule(network, find_classifier_layer(network, 10), [0.45] * channels, [0.25] * channels).train()
    with torch.no_grad():
        for _ in range(SETTLING_PASSES):
            module(images)
    return module.eval()


if __name__ == "__main__":
    main()
