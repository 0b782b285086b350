"""What asynchronous updates do to a model with batch normalisation."""

from collections.abc import Sequence

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from equipoise.config import TrainConfig


def describe_stale_statistics(config: TrainConfig, model: nn.Module, frozen_modules: Sequence[nn.Module]) -> str:
    """Return a sentence on the running statistics of a model whose workers are asynchronous; "" without any."""
    frozen = {module for root in frozen_modules for module in root.modules()}
    num_layers = sum(isinstance(module, _BatchNorm) and module not in frozen for module in model.modules())
    if config.sync_method.kind != "async" or not num_layers:
        return ""
    return (
        f"the model has batch normalisation, and with --sync {config.sync} running statistics come from weights of"
        " different ages: each worker has its own within a lap, and their mean is what is evaluated; a model with group"
        " or layer normalisation has none"
    )
