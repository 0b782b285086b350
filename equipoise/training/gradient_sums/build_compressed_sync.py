"""Sum of compressed gradients by the name of the compression."""

from functools import partial

from equipoise.compression.build_encoded_sum import build_encoded_sum
from equipoise.compression.worker_layout import WorkerLayout
from equipoise.config import TrainConfig
from equipoise.training.gradient_sums.compressed_sync import CompressedSync, EncodedSync, NamedParameters
from equipoise.training.gradient_sums.compression_checks import check_compression
from equipoise.training.gradient_sums.low_rank_sync import LowRankSync
from equipoise.training.step_timer import SpanTimer


def build_compressed_sync(
    config: TrainConfig, parameters: NamedParameters, rank: int, processes: int, timer: SpanTimer
) -> CompressedSync:
    """Build the sum of gradients that --compression asks for; refuse parameters that it cannot take."""
    method = config.compression_method
    check_compression(method, parameters)
    layout = WorkerLayout(config.workers, rank, processes)
    if method.kind == "powersgd":
        return LowRankSync(config, parameters, layout, timer, int(method.amount))
    return EncodedSync(config, parameters, layout, timer, partial(build_encoded_sum, method))
