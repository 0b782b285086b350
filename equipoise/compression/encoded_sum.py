"""Sum of one flat tensor of each worker, of which each worker sends what its compression encodes.

    for each hosted worker:  `encode_worker` of its tensor      then: `sum_over_workers`

What an encoding leaves out is kept and added to what the same worker encodes next (error feedback; F. Seide et al.,
1-bit stochastic gradient descent and its application to data-parallel distributed training of speech DNNs, 2014; S. P.
Karimireddy et al., Error feedback fixes SignSGD, 2019), so that what was sent and what is kept add up to the sum of all
tensors so far.
"""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from equipoise.compression.worker_layout import ExchangeChunks


class EncodedSum(Protocol):
    """Sum over workers of encoded tensors."""

    total: Tensor
    """sum of what all workers have encoded, after `sum_over_workers`"""

    def encode_worker(self, index: int, values: Tensor) -> None:
        """Encode what a hosted worker adds, counted from 0 in this process."""

    def sum_over_workers(self, exchange: ExchangeChunks) -> Tensor:
        """Sum what all workers have encoded to `total`, with the same bits on all; all processes call this."""

    def list_errors(self) -> dict[str, Tensor]:
        """Return what this process keeps of what was left out, by the names of `kept_errors`."""

    def load_errors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take what `list_errors` of these workers returned, whichever processes computed for them."""

    def count_sent_bytes(self) -> int:
        """Return the bytes that leave this process in a sum."""

    @property
    def num_rounds(self) -> int:
        """Messages of a sum that wait for each other."""
