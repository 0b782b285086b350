"""Every engine on three models, as publishing times them: python -m benchmarks.engines.

Weights are drawn, and running statistics settled on noise first: without that a deep model's scores are nearly zero.
"""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from equipoise.bundle import engine_benchmark as contest
from equipoise.bundle import engines
from equipoise.bundle.engines import Served
from equipoise.hardware import machine
from equipoise.training.finetune import head_of
from equipoise.workloads.models import model
from jobs.cli.engine_report import table
from jobs.publishing.export import compiled, export

MODELS = [("lenet", 1, 28), ("mobilenet_v3_small", 3, 224), ("resnet18", 3, 224)]
PICTURES, SETTLING = 32, 20


def main() -> None:
    """Print a table for each model, and which engine publishing would choose."""
    print(", ".join(f"{name} {value}" for name, value in machine(torch.device("cpu")).items()))
    for name, channels, size in MODELS:
        pictures = torch.randint(0, 256, (PICTURES, channels, size, size), dtype=torch.uint8)
        served = settled(name, channels, size, pictures)

        @torch.inference_mode()
        def truth(batch: Tensor, served: Served = served) -> tuple[Tensor, Tensor]:
            logits, features = served(batch)
            return logits, features

        with TemporaryDirectory() as folder, TemporaryDirectory() as scratch:
            export(served, pictures[:2], Path(folder))
            makers = {engine: partial(make, Path(folder)) for engine, make in engines.ENGINES.items()}
            makers["aotinductor"] = partial(compiled, served, pictures, Path(scratch))
            results = contest.contest(makers, truth, pictures)
        chosen, why = contest.winner([one for one in results if one.engine in engines.ENGINES])
        print(f"\n{name}, {channels}x{size}x{size}\n{table(results)}\n{chosen}: {why}", flush=True)


def settled(name: str, channels: int, size: int, pictures: Tensor) -> Served:
    """The model with its preprocessing, ready to answer."""
    torch.manual_seed(0)
    network = model(name, 10, channels, size)()
    served = Served(network, head_of(network, 10), [0.45] * channels, [0.25] * channels).train()
    with torch.no_grad():
        for _ in range(SETTLING):
            served(pictures)
    return served.eval()


if __name__ == "__main__":
    main()
