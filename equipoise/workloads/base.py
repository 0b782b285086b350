"""Definition of a workload: data in four splits, a model, a loss, a metric and a target, for any kind of data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Subset

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import pluralize
from equipoise.runs.target import UNNAMED_METRIC, Target
from equipoise.workloads.batch import Batch, count_examples, map_tensors, select_examples, stack_examples
from equipoise.workloads.user_code import call_user_code

MAX_EPOCHS = 50  # default limit of a training run that does not reach its target


@dataclass(frozen=True)
class Split:
    """Examples of one split of the data: inputs of the model, and targets of the loss.

    Both are batches of all examples in memory (see `equipoise.workloads.batch`), or the inputs are a data set with
    `__len__` and `__getitem__`, whose examples are read when they are needed.
    """

    inputs: Any
    """inputs of all examples, or a data set"""
    targets: Any = None
    """targets of all examples; None if the data set returns pairs of inputs and targets"""
    collate: Callable[[list[Any]], Batch] = stack_examples
    """makes a batch of what the data set returns for several examples, for example by padding"""

    def __len__(self) -> int:
        return len(self.inputs) if self.targets is None else count_examples(self.targets)

    @property
    def is_in_memory(self) -> bool:
        """Whether all examples are held in memory."""
        return self.targets is not None and isinstance(self.inputs, Tensor | tuple | list | Mapping)

    def read_examples(self, indices: Sequence[int] | NDArray[np.int64]) -> tuple[Batch, Batch]:
        """Return the inputs and targets of the examples at `indices`."""
        rows = torch.as_tensor(np.asarray(indices, np.int64))
        if self.is_in_memory:
            return select_examples(self.inputs, rows), select_examples(self.targets, rows)
        examples = [read_item(self.inputs, index) for index in rows.tolist()]
        items = call_user_code("collate", lambda: self.collate(examples))
        if self.targets is not None:
            return items, select_examples(self.targets, rows)
        return require_pair(items, len(rows))

    def take_first(self, count: int) -> "Split":
        """Return a split of the first `count` examples."""
        rows = torch.arange(min(count, len(self)))
        targets = None if self.targets is None else select_examples(self.targets, rows)
        if self.is_in_memory:
            return replace(self, inputs=select_examples(self.inputs, rows), targets=targets)
        return replace(self, inputs=Subset(self.inputs, rows.tolist()), targets=targets)


def read_item(dataset: Any, index: int) -> Any:
    """Return the example of a data set at a place; say which one if that fails.

    An OSError stays what it is: a disk or a network may be back when the worker is started again.
    """
    description = f"example {index} of its {type(dataset).__name__}"
    return call_user_code(description, lambda: dataset[index], passing=(OSError,), code="dataset-invalid")


def require_pair(items: Any, count: int) -> tuple[Batch, Batch]:
    """Return the inputs and targets of `count` examples, as made by a collate; refuse anything else."""
    if not isinstance(items, tuple | list) or len(items) != 2:
        found = f"{len(items)} values" if isinstance(items, tuple | list) else f"a {type(items).__name__}"
        raise EquipoiseError(
            "workload-invalid",
            f"its data set and collate return {found} for {pluralize(count, 'example')}",
            "return a pair of inputs and targets, or give targets to the Split",
        )
    inputs, targets = items
    num_inputs, num_targets = call_user_code("counting a batch", lambda: [count_examples(batch) for batch in items])
    if num_inputs != count or num_targets != count:
        raise EquipoiseError(
            "workload-invalid",
            f"its collate made {num_inputs} inputs and {num_targets} targets of {pluralize(count, 'example')}",
            "it must keep all examples in their order, with a row or an item for each",
        )
    return inputs, targets


@dataclass(frozen=True)
class Unit:
    """Unit in which people count what a model learns from, such as tokens, besides examples."""

    name: str = "examples"
    """name of the unit, in the plural"""
    per_example: int = 1
    """units in an example"""


class Augmentation(Protocol):
    """Random changes of training examples, a function of the seed, the epoch and the index of each."""

    def __call__(
        self, inputs: Any, targets: Any, seed: int, epochs: NDArray[np.int64], examples: NDArray[np.int64], /
    ) -> tuple[Any, Any]:
        """Return the inputs and targets of a batch, changed."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Learning task: splits, model, loss, metric, target.

    A workload of your own is a function that takes a `TrainConfig` and returns a `Workload`, or an `ImageWorkload` for
    labelled images; `--workload` names it as module:attribute.
    """

    name: str
    """name of the workload, and of its published model"""
    train: Split
    """what the model learns from"""
    validation: Split
    """split on which the metric is measured that decides when to stop"""
    reference: Split
    """held out from training: the reference profile of drift detection"""
    test: Split
    """evaluated once, at the end"""
    model: Callable[[], nn.Module]
    """builds a new model with weights drawn from torch's default generator"""
    target: float | None
    """value of the metric on the validation split at which training stops; None to train --max-examples"""
    loss: Callable[[Any, Any], Tensor]
    """maps (outputs of the model, targets) to the mean loss of a batch"""
    metric: Callable[[Any, Any], Tensor]
    """maps (outputs of the model, targets) to one value, or one row of values, per example"""
    score: Callable[[Tensor], float] | None = None
    """maps the metric's rows of all examples of a split, in their order, to the metric; by default their mean"""
    metric_name: str = UNNAMED_METRIC
    """name of the metric for people, such as mAP"""
    lower_is_better: bool = False
    """whether a lower metric is a better one, as with an error"""
    unit: Unit = Unit()
    """unit in which people count examples of this kind"""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """options of `TrainConfig` that suit this workload, such as the optimizer; for those that are not given"""
    augment: Augmentation | None = None
    """random changes of training examples; None for none"""
    classes: Sequence[str] = ()
    """class names in the order of the labels; empty if the model does not classify"""
    has_independent_classes: bool = False
    """whether the score of a class does not depend on those of others: a sigmoid each, not one softmax"""

    def input_transform(self, device: torch.device, dtype: torch.dtype) -> Callable[[Batch], Batch]:
        """Return what turns inputs as they are stored into what the model takes; here a cast of floats to `dtype`."""
        return lambda inputs: map_tensors(inputs, lambda tensor: cast_floats(tensor, dtype))

    def run_target(self, config: TrainConfig) -> Target:
        """Return the target of a run with these options."""
        value = self.target if config.target is None else config.target
        lower_is_better = self.lower_is_better or config.lower_is_better
        return Target(value=value, lower_is_better=lower_is_better, metric_name=self.metric_name)

    def max_examples(self, config: TrainConfig) -> int:
        """Return the number of examples after which training stops without reaching the target."""
        return config.max_examples or MAX_EPOCHS * len(self.train)

    def eval_interval(self, config: TrainConfig) -> int:
        """Return the number of examples between evaluations; by default a quarter of an epoch."""
        return config.eval_every or max(1, len(self.train) // 4)

    def warmup_examples(self, config: TrainConfig) -> float:
        """Return the number of examples over which the learning rate rises."""
        return config.warmup * len(self.train) if config.warmup_examples is None else config.warmup_examples


def cast_floats(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor in `dtype` if it holds floating-point numbers, else the tensor itself."""
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def stratified_split(labels: NDArray[np.int64], fractions: Sequence[float], seed: int = 0) -> list[NDArray[np.int64]]:
    """Deal indices into disjoint parts: one per fraction, preceded by a first part that takes the rest.

    The split is stratified: every part has the classes in proportion as far as whole examples allow. It is always the
    same for the same labels and seed.
    """
    rng = np.random.Generator(np.random.Philox(key=seed))
    bounds = np.cumsum([1 - sum(fractions), *fractions])
    parts: list[list[NDArray[np.int64]]] = [[] for _ in bounds]
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        cuts = np.rint(bounds[:-1] * len(members)).astype(int)
        for part, piece in zip(parts, np.split(members, cuts), strict=True):
            part.append(piece)
    return [np.sort(np.concatenate(part)) for part in parts]


def select_split(inputs: Batch, targets: Batch, indices: NDArray[np.int64]) -> Split:
    """Return the examples at `indices` as an in-memory split."""
    rows = torch.from_numpy(indices)
    return Split(select_examples(inputs, rows), select_examples(targets, rows))
