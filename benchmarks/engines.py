"""Every engine on three models, as publishing times them: python -m benchmarks.engines.

Weights are drawn, and running statistics settled on noise first: without that a deep model's scores are nearly zero.
"""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from equipoise.bundle.engine_benchmark import benchmark_engines, select_engine
from equipoise.bundle.engines import ENGINES, InferenceModule
from equipoise.hardware import describe_hardware
from equipoise.training.finetune import find_classifier_layer
from equipoise.workloads.models import model_factory
from jobs.cli.engine_report import format_engine_table
from jobs.publishing.export import compile_aotinductor, export_programs

MODELS = [("lenet", 1, 28), ("mobilenet_v3_small", 3, 224), ("resnet18", 3, 224)]
PICTURES, SETTLING = 32, 20


def main() -> None:
    """Print a table for each model, and which engine publishing would choose."""
    print(", ".join(f"{name} {value}" for name, value in describe_hardware(torch.device("cpu")).items()))
    for name, channels, size in MODELS:
        pictures = torch.randint(0, 256, (PICTURES, channels, size, size), dtype=torch.uint8)
        served = settled(name, channels, size, pictures)

        @torch.inference_mode()
        def truth(batch: Tensor, served: InferenceModule = served) -> tuple[Tensor, Tensor]:
            logits, features = served(batch)
            return logits, features

        with TemporaryDirectory() as folder, TemporaryDirectory() as scratch:
            export_programs(served, pictures[:2], Path(folder))
            makers = {engine: partial(make, Path(folder)) for engine, make in ENGINES.items()}
            makers["aotinductor"] = partial(compile_aotinductor, served, pictures, Path(scratch))
            results = benchmark_engines(makers, truth, pictures)
        chosen, why = select_engine([one for one in results if one.engine in ENGINES])
        print(f"\n{name}, {channels}x{size}x{size}\n{format_engine_table(results)}\n{chosen}: {why}", flush=True)


def settled(name: str, channels: int, size: int, pictures: Tensor) -> InferenceModule:
    """The model with its preprocessing, ready to answer."""
    torch.manual_seed(0)
    network = model_factory(name, 10, channels, size)()
    served = InferenceModule(network, find_classifier_layer(network, 10), [0.45] * channels, [0.25] * channels).train()
    with torch.no_grad():
        for _ in range(SETTLING):
            served(pictures)
    return served.eval()


if __name__ == "__main__":
    main()
