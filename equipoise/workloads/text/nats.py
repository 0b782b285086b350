"""Loss and metric of language models: nats, the negative logarithm of the probability of what came next."""

from torch import Tensor
from torch.nn import functional as F


def mean_token_nats(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy over all tokens of a batch, in nats."""
    return F.cross_entropy(scores.flatten(0, 1), targets.flatten())


def window_nats(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy of each window, in nats per token."""
    return F.cross_entropy(scores.transpose(1, 2), targets, reduction="none").mean(1)
