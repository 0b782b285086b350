"""Score of a workload: one number from the metric's rows of all examples of a split."""

from collections.abc import Callable
from numbers import Real

import numpy as np
from torch import Tensor

from equipoise.errors import EquipoiseError
from equipoise.workloads.user_code import call_user_code


def compute_score(score: Callable[[Tensor], float], rows: Tensor) -> float:
    """Return the score of the rows of a split; refuse a function that raises or returns no number."""
    return require_score(call_user_code(f"the workload's score of {len(rows):,} rows", lambda: score(rows)))


def require_score(value: object) -> float:
    """Return what a score function has returned as a float; refuse what is not one real number."""
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, Tensor | np.ndarray) and np.prod(value.shape) == 1 and isinstance(value.item(), Real):
        return float(value.item())
    found = f"a tensor of {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
    raise EquipoiseError("workload-invalid", f"the workload's score must return one number, got {found}")
