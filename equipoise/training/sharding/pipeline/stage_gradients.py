"""Sum of the gradients of a stage over the replicas of the model, and of weights that several stages use."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from equipoise.planning.exchanges.exchange_time import all_reduce_cost
from equipoise.training.gradient_sync import GradientAllReduce, SumTraffic
from equipoise.training.sharding.pipeline.tensor_layout import flatten_dense


class TiedWeights(NamedTuple):
    """Weights that the same stages use, each of which holds them."""

    names: list[str]
    holders: tuple[int, ...]
    group: dist.ProcessGroup
    """workers of this replica that hold them"""


class NormPlaces(NamedTuple):
    """Places in a row of the norms of all trained weights."""

    by_name: Mapping[str, int]
    """places of the weights that this stage counts: of those of several stages, the first one counts them"""
    num_weights: int
    dtype: torch.dtype
    device: torch.device
    group: dist.ProcessGroup
    """workers of this replica"""


class StageGradientSum(GradientAllReduce):
    """Sum over the workers that hold the same stage; every replica clips by the norm over all of its stages."""

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        replicas: int,
        group: dist.ProcessGroup | None,
        tied: Sequence[TiedWeights],
        norm_places: NormPlaces,
    ) -> None:
        super().__init__(list(parameters.values()), replicas, group=group)
        self.named_parameters, self.tied, self.norm_places = parameters, tied, norm_places

    def wait_for_sums(self) -> None:
        """Wait until every gradient is the sum over replicas, and over the stages that use its weight."""
        super().wait_for_sums()
        for weights in self.tied:
            for name in weights.names:
                parameter = self.named_parameters[name]
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                dist.all_reduce(flatten_dense(parameter.grad), group=weights.group)

    def clip_gradients(self, parameters: Sequence[nn.Parameter], max_norm: float) -> None:
        """Scale the gradient down to a norm over all stages, to the bit that of one process wherever the cuts are."""
        places = self.norm_places
        norms = torch.zeros(places.num_weights, dtype=places.dtype, device=places.device)
        for name, place in places.by_name.items():
            gradient = self.named_parameters[name].grad
            if gradient is not None:
                norms[place] = torch.linalg.vector_norm(gradient)
        dist.all_reduce(norms, group=places.group)  # each is added to zeros, which is exact
        nn.utils.clip_grads_with_norm_(parameters, max_norm, torch.linalg.vector_norm(norms))

    def count_tied_traffic(self) -> SumTraffic:
        """Return what this worker sends to sum the gradients of weights that several stages use."""
        sent_bytes = rounds = 0
        for weights in self.tied:
            for name in weights.names:
                cost = all_reduce_cost("ring", len(weights.holders), self.named_parameters[name].nbytes)
                sent_bytes, rounds = sent_bytes + round(cost.max_sent_bytes), rounds + cost.rounds
        return SumTraffic(sent_bytes, rounds)
