"""Whether the steps of a workload depend on how a global batch is split over workers.

One worker may stand for several only if they do not: if the loss of a batch is the mean of the losses of its parts, and
no random numbers are drawn for a part. Batch normalization mixes the examples of a part; a loss averaged over the real
tokens of sentences of unequal length weighs a token by the length of the others in its part; dropout draws numbers.
"""

import torch
from torch import Tensor, nn

from equipoise.spacing import evenly_spaced_indices
from equipoise.workloads import Workload
from equipoise.workloads.base import cast_floats
from equipoise.workloads.batch import call_model, map_tensors

MIXING_LAYERS = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)
PART_EXAMPLES = 3  # in each of the two parts of a batch
WEIGHT_NOISE = 0.05  # added to weights: layers that begin at zero would hide what depends on the batch
MAX_RELATIVE_DIFFERENCE = 1e-9  # of losses in fp64


def depends_on_batch_split(workload: Workload) -> bool:
    """Return whether a step depends on the split of its global batch, by trying a few examples in fp64."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = workload.model()
        if any(isinstance(module, MIXING_LAYERS) for module in model.modules()):
            return True
        try:
            return not is_separable(workload, model)
        except RuntimeError:  # such as a layer that has no fp64: then the parts are taken in turn, which is right
            return True


def is_separable(workload: Workload, model: nn.Module) -> bool:
    """Return whether the loss of a batch is the mean of the losses of its halves, without random numbers."""
    count = min(2 * PART_EXAMPLES, len(workload.train) // 2 * 2)
    if count < 2:
        return True
    indices = evenly_spaced_indices(len(workload.train), count).tolist()
    model = model.double().train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=WEIGHT_NOISE)
        before = torch.get_rng_state()
        whole, first, second = (
            measure_loss(workload, model, part) for part in (indices, indices[: count // 2], indices[count // 2 :])
        )
    if not torch.equal(before, torch.get_rng_state()):
        return False
    mean = (first + second) / 2
    return bool((whole - mean).abs() <= MAX_RELATIVE_DIFFERENCE * whole.abs().clamp_min(1e-6))


def measure_loss(workload: Workload, model: nn.Module, indices: list[int]) -> Tensor:
    """Return the loss of a model of fp64 on some training examples."""
    inputs, targets = workload.train.read_examples(indices)
    inputs = workload.input_transform(torch.device("cpu"), torch.float64)(inputs)
    targets = map_tensors(targets, lambda tensor: cast_floats(tensor, torch.float64))
    return workload.loss(call_model(model, inputs), targets).double()
