"""Label smoothing (Szegedy et al., 2015, arXiv:1512.00567): a share of each label is spread over all classes."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from equipoise.errors import EquipoiseError
from equipoise.workloads.base import Workload
from equipoise.workloads.text.nats import mean_token_nats


def smooth_labels(workload: Workload, share: float) -> Workload:
    """Return a workload whose loss spreads a share of each label; its metric and score stay as they are."""
    if not share:
        return workload
    loss = next((smoothed for plain, smoothed in SMOOTHED_LOSSES if plain is workload.loss), None)
    if loss is None:
        raise EquipoiseError(
            "option-conflict",
            f"cannot smooth the labels of {workload.name}: its loss is not the cross-entropy of classes or tokens",
            "omit --label-smoothing",
        )
    return replace(workload, loss=partial(loss, label_smoothing=share))


def smoothed_token_nats(scores: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    """Return the mean cross-entropy over all tokens of a batch with smoothed targets, in nats."""
    return F.cross_entropy(scores.flatten(0, 1), targets.flatten(), label_smoothing=label_smoothing)


SMOOTHED_LOSSES: tuple[tuple[Callable[[Any, Any], Tensor], Callable[..., Tensor]], ...] = (
    (F.cross_entropy, F.cross_entropy),
    (mean_token_nats, smoothed_token_nats),
)
"""losses, each with the function that takes a share to spread"""
