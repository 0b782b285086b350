"""Mixup (Zhang et al., 2017, arXiv:1710.09412): a model learns blends of two examples and of their labels.

With x and y of an example and x' and y' of its partner: l x + (1 - l) x' and l y + (1 - l) y', where y are one-hot and
l is drawn from Beta(a, a). The cross-entropy of the blended label is the same blend of both cross-entropies.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from equipoise.errors import EquipoiseError
from equipoise.rng import derive_seed
from equipoise.workloads.base import Workload

MIXUP_KEY = 0x6D69787570  # apart from other draws of a micro-batch


def draw_mixup(seed: int, step: int, micro_index: int, alpha: float, count: int) -> tuple[float, NDArray[np.int64]]:
    """Return the share that the examples of a micro-batch keep, and the partner of each among them."""
    key = derive_seed(seed, step, micro_index, MIXUP_KEY)
    generator = np.random.Generator(np.random.Philox(key=key))
    return float(generator.beta(alpha, alpha)), generator.permutation(count)


def blend_inputs(inputs: Tensor, share: float, partners: Tensor) -> Tensor:
    """Return each input blended with that of its partner."""
    return torch.add(inputs.index_select(0, partners).mul_(1 - share), inputs, alpha=share)


def blend_labels(labels: Tensor, share: float, partners: Tensor, num_classes: int, dtype: torch.dtype) -> Tensor:
    """Return the probabilities of the classes of blended examples (examples, classes)."""
    targets = torch.zeros(len(labels), num_classes, dtype=dtype, device=labels.device)
    targets.scatter_(1, labels[:, None], share)
    rest = torch.full_like(labels, 1 - share, dtype=dtype)[:, None]
    return targets.scatter_add_(1, labels.index_select(0, partners)[:, None], rest)


def require_blendable(workload: Workload) -> None:
    """Refuse to blend examples that are not one tensor of numbers, with one class each."""
    reason = None
    if workload.loss is not F.cross_entropy or not workload.classes:
        reason = "its loss is not the cross-entropy of classes"
    else:
        inputs, labels = workload.train.read_examples([0])
        inputs = workload.input_transform(torch.device("cpu"), torch.float32)(inputs)
        if not (isinstance(inputs, Tensor) and inputs.is_floating_point()):
            reason = "its inputs are not numbers alone, of which a blend could be an input too"
        elif not (isinstance(labels, Tensor) and labels.ndim == 1 and labels.dtype == torch.int64):
            reason = "its targets are not one class for each example"
    if reason is not None:
        raise EquipoiseError("option-conflict", f"cannot blend examples of {workload.name}: {reason}", "omit --mixup")
