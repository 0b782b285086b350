"""Sum of the gradients of a run, as its options ask for it."""

from collections.abc import Mapping

from torch import nn

from equipoise.config import TrainConfig
from equipoise.training.gradient_sync import GradientAllReduce
from equipoise.training.step_timer import SpanTimer


def build_gradient_sync(
    config: TrainConfig, parameters: Mapping[str, nn.Parameter], rank: int, processes: int, timer: SpanTimer
) -> GradientAllReduce:
    """Build the sum of gradients over processes: exact, or of what --compression makes of them."""
    if config.compression_method.kind == "none":
        return GradientAllReduce(list(parameters.values()), processes, config.all_reduce)
    from equipoise.training.gradient_sums.build_compressed_sync import build_compressed_sync  # exact sums need none

    return build_compressed_sync(config, parameters, rank, processes, timer)
