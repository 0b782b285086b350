"""Sum of encoded tensors by the name of its compression."""

from torch import Tensor

from equipoise.compression.block_encoders import BLOCK_ENCODERS
from equipoise.compression.encoded_sum import EncodedSum
from equipoise.compression.quantized_sum import QuantizedSum
from equipoise.compression.top_share_sum import TopShareSum
from equipoise.compression.worker_layout import WorkerLayout
from equipoise.registries.exchange_registry import CompressionMethod


def build_encoded_sum(
    method: CompressionMethod, layout: WorkerLayout, like: Tensor, error_feedback: bool = True
) -> EncodedSum:
    """Build the sum over workers of flat tensors with the shape and dtype of `like`: by bf16, int8 or topk."""
    if method.kind == "topk":
        return TopShareSum(layout, like, method.amount, error_feedback)
    return QuantizedSum(layout, like, BLOCK_ENCODERS[method.kind], error_feedback)
