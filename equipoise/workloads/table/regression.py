"""Loss and metric of a predicted number."""

import torch
from torch import Tensor
from torch.nn import functional as F


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean squared error of standardized numbers."""
    return F.mse_loss(outputs, targets)


def residuals_and_targets(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the error and the target of each row (rows, 2), from which any number of workers gets the same R2."""
    return torch.stack([targets.double() - outputs.double(), targets.double()], dim=1)


def r2_score(rows: Tensor) -> float:
    """Return the share of the targets' variance that is predicted: 1 - sum(error^2) / sum((target - mean)^2).

    Where all targets are equal it is 1 without an error and else 0, as in scikit-learn.
    """
    errors, targets = rows.double().unbind(1)
    residual, total = float(errors.square().sum()), float((targets - targets.mean()).square().sum())
    if total == 0:
        return float(residual == 0)
    return 1 - residual / total
