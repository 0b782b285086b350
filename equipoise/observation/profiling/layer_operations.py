"""Operations of each layer in the passes of an observed loop, those of forward passes apart."""

from collections import defaultdict
from typing import Self

from torch import nn

from equipoise.profiling.layer_work import build_flop_counter, find_own_flop, sum_module_flop


class LayerOperations:
    """Count of operations by layer of a model, while it is the context manager."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.counter = model, build_flop_counter(model)
        self.forward: dict[str, float] = defaultdict(float)
        """operations of forward passes, those of inner modules included"""
        self.before: dict[str, float] = {}
        """operations before the forward pass that goes on"""

    def __enter__(self) -> Self:
        self.counter.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.counter.__exit__(*error)

    def begin_forward(self) -> None:
        """Note that a forward pass starts."""
        self.before = sum_module_flop(self.counter, self.model)

    def end_forward(self) -> None:
        """Note that a forward pass ends."""
        for name, operations in sum_module_flop(self.counter, self.model).items():
            self.forward[name] += operations - self.before.get(name, 0.0)

    def find_own(self, examples: int) -> tuple[dict[str, float], dict[str, float]]:
        """Return the operations of each layer alone for one of so many examples: of forward passes, and of all."""
        both = sum_module_flop(self.counter, self.model)
        return find_own_flop(self.forward, examples), find_own_flop(both, examples)
