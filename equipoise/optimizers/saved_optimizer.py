"""Optimizer as a checkpoint sees it."""

from typing import Protocol

from torch import Tensor


class SavedOptimizer(Protocol):
    """Optimizer whose state is part of a checkpoint, wherever it is kept."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of each parameter as PARAMETER.KEY."""

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state from the tensors of `state_dict`; the model has its weights already."""
