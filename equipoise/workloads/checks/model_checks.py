"""Checks of a workload's model, loss, metric and score, by trying them on two examples of each split."""

import logging
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import pluralize
from equipoise.workloads.base import Augmentation, Split, Workload
from equipoise.workloads.batch import Batch, call_model, count_examples, list_tensors
from equipoise.workloads.checks.image_checks import check_scores
from equipoise.workloads.image_workload import ImageWorkload
from equipoise.workloads.score import require_score
from equipoise.workloads.user_code import call_user_code, join_lines

WORKLOAD_SPLITS = ("train", "validation", "reference", "test")
logger = logging.getLogger(__name__)  # commands configure no handler: Python then prints warnings to stderr as they are
BROADCAST_WARNING = "Using a target size"  # of torch's losses, which train on a wrong mean then


def check_model(name: str, workload: Workload, config: TrainConfig) -> None:
    """Refuse a model, loss or metric that does not fit the examples or the batch size."""
    if isinstance(workload.model, nn.Module):  # calling it would run the model
        raise EquipoiseError(
            "workload-invalid",
            f"{name}: its model is a {type(workload.model).__name__}, and each run needs a new one",
            "give a function that builds it, such as model=lambda: MyModel(), or the class MyModel itself",
        )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.filterwarnings("error", BROADCAST_WARNING, UserWarning)
        model = call_user_code(f"{name}: its model()", workload.model)
        require_trainable(name, model)
        for part in reversed(WORKLOAD_SPLITS):
            split = getattr(workload, part)
            examples = read_two_examples(f"{name}: its {part} split", workload, split)
            with torch.no_grad():
                check_outputs(name, workload, model, *examples)
        check_one_example(name, workload, model)
        check_training(name, workload, config, model)


def require_trainable(name: str, model: object) -> None:
    """Refuse what is no module, and a module without weights to train or with weights that are not made yet."""
    if not isinstance(model, nn.Module):
        raise EquipoiseError(
            "workload-invalid",
            f"{name}: its model() returned a {type(model).__name__}",
            "it must return a new torch.nn.Module",
        )
    if lazy := [key for key, value in model.named_parameters() if isinstance(value, UninitializedParameter)]:
        raise EquipoiseError(
            "workload-invalid",
            f"{name}: its model() returned a model whose {lazy[0]} has no size yet",
            "give layers their sizes, or run the model on an example before it is returned",
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise EquipoiseError(
            "workload-invalid", f"{name}: its model has no trainable parameters", "give it some that require a gradient"
        )


def read_two_examples(description: str, workload: Workload, split: Split) -> tuple[Batch, Batch]:
    """Return the first and the last example as the model and the loss take them; the last shows that a length is true.

    Labels are the lowest and the highest, if there are some.
    """
    inputs, targets = read_first_and_last(description, split)
    labels = split.targets
    if isinstance(labels, Tensor) and labels.dtype == torch.int64 and labels.ndim == 1:
        targets = torch.stack([labels.min(), labels.max()])
    transform = workload.input_transform(torch.device("cpu"), torch.float32)
    return call_user_code(description, lambda: transform(inputs)), targets


def read_first_and_last(description: str, split: Split) -> tuple[Batch, Batch]:
    """Return the first and the last example of a split as they are stored."""
    try:
        return call_user_code("reading it", lambda: split.read_examples([0, len(split) - 1]))
    except EquipoiseError as error:
        raise error.within(description) from error


def check_outputs(name: str, workload: Workload, model: nn.Module, inputs: Batch, targets: Batch) -> None:
    """Refuse a model that does not take two examples, and a loss or metric that does not take its outputs."""
    outputs = try_model(name, model.eval(), inputs)
    if isinstance(workload, ImageWorkload):
        check_scores(name, outputs)
    shapes = describe_shapes(outputs)
    loss = call_user_code(f"{name}: its loss on outputs of {shapes}", lambda: workload.loss(outputs, targets))
    require_loss(name, loss)
    rows = call_user_code(f"{name}: its metric on outputs of {shapes}", lambda: workload.metric(outputs, targets))
    check_metric_rows(name, workload, rows, 2)
    if workload.score is not None:
        check_score(name, workload.score, rows)


def try_model(name: str, model: nn.Module, inputs: Batch) -> Any:
    """Return the outputs of a model; refuse one that does not take the inputs."""
    mode = " in training" if model.training else ""
    description = f"{name}: its model{mode} on inputs of {describe_shapes(inputs)}"
    return call_user_code(description, lambda: call_model(model, inputs))


def require_loss(name: str, loss: object) -> Tensor:
    """Return a loss that is one real number; refuse anything else."""
    if isinstance(loss, Tensor) and not loss.ndim and loss.is_floating_point():
        return loss
    found = f"{loss.dtype} of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
    raise EquipoiseError(
        "workload-invalid",
        f"{name}: its loss must be one number, the mean over the batch, got {found}",
        "return a floating-point tensor without dimensions",
    )


def check_metric_rows(name: str, workload: Workload, rows: object, count: int) -> None:
    """Refuse a metric that is not one real and finite row for each of `count` examples."""
    fits = isinstance(rows, Tensor) and not rows.is_complex() and rows.shape[:1] == (count,) and rows.ndim <= 2
    if not isinstance(rows, Tensor) or not fits or not rows.isfinite().all():
        found = f"shape {tuple(rows.shape)}: {rows}" if isinstance(rows, Tensor) else f"a {type(rows).__name__}"
        examples = "two examples" if count == 2 else "one example"
        raise EquipoiseError(
            "workload-invalid",
            f"{name}: its metric must be one finite number per example, got {join_lines(found)} for {examples}",
            "return a tensor of (examples,), or of (examples, values) with a score",
        )
    if rows.ndim == 2 and workload.score is None:
        raise EquipoiseError(
            "workload-invalid",
            f"{name}: its metric has {rows.shape[1]} values per example and it has no score",
            "give score, which makes one number of the rows of all examples",
        )


def check_score(name: str, score: object, rows: Tensor) -> None:
    """Refuse a score that is no function or returns no number; it may fail, since two rows may be too few for it."""
    if not callable(score):
        raise EquipoiseError(
            "workload-invalid",
            f"{name}: its score is a {type(score).__name__}",
            "give a function, or None for the mean",
        )
    try:
        value = score(rows.double())
    except Exception:  # such as an area under a curve that needs two classes
        return
    require_score(value)


def check_one_example(name: str, workload: Workload, model: nn.Module) -> None:
    """Refuse a model or metric that drops the dimension of a single example, as `squeeze()` does."""
    description = f"{name}: its validation split"
    inputs, targets = call_user_code(description, lambda: workload.validation.read_examples([0]))
    inputs = workload.input_transform(torch.device("cpu"), torch.float32)(inputs)
    with torch.no_grad():
        outputs = try_model(name, model.eval(), inputs)
        rows = call_user_code(f"{name}: its metric of one example", lambda: workload.metric(outputs, targets))
    check_metric_rows(name, workload, rows, 1)


def check_training(name: str, workload: Workload, config: TrainConfig, model: nn.Module) -> None:
    """Refuse a model that cannot take a step: on one example with --batch-size 1, else on two."""
    split = workload.train
    takes_one = config.batch_size == 1 and config.freeze_stages == 0  # frozen layers normalize by constants
    indices = np.array([0] if takes_one else [0, len(split) - 1])
    inputs, targets = read_repeatedly(f"{name}: its train split", split, indices)
    if config.augment and workload.augment is not None:
        inputs, targets = try_augmentation(name, workload.augment, inputs, targets, indices)
    inputs = workload.input_transform(torch.device("cpu"), torch.float32)(inputs)
    if takes_one:
        refuse_single_values(model, inputs)
    outputs = try_model(name, model.train(), inputs)
    loss = call_user_code(f"{name}: its loss in training", lambda: workload.loss(outputs, targets))
    if not require_loss(name, loss).isfinite():
        raise EquipoiseError(
            "workload-invalid",
            f"{name}: its loss is {loss.item()} before any training",
            "look for a logarithm or a division that fails, and for targets that the loss does not take",
        )
    require_gradient(name, model, loss)


def read_repeatedly(description: str, split: Split, indices: NDArray[np.int64]) -> tuple[Batch, Batch]:
    """Return examples of a split; warn of a data set that returns others when they are read again."""
    examples = call_user_code(description, lambda: split.read_examples(indices))
    if not split.is_in_memory:
        again = call_user_code(description, lambda: split.read_examples(indices))
        pairs = zip(list_tensors(examples), list_tensors(again), strict=False)
        if not all(first.equal(second) for first, second in pairs):
            logger.warning(
                "note: %s is random: an example differs when it is read again, so that a run cannot be repeated or"
                " resumed exactly; change examples in the workload's augment, by their seed, epoch and number",
                description,
            )
    return examples


def try_augmentation(
    name: str, augment: Augmentation, inputs: Batch, targets: Batch, indices: NDArray[np.int64]
) -> tuple[Batch, Batch]:
    """Return augmented examples; refuse an augmentation that does not return as many inputs and targets."""
    description = f"{name}: its augmentation"

    def augment_examples() -> tuple[Batch, Batch, int, int]:
        new_inputs, new_targets = augment(inputs, targets, 0, np.zeros_like(indices), indices)
        return new_inputs, new_targets, count_examples(new_inputs), count_examples(new_targets)

    new_inputs, new_targets, *counts = call_user_code(description, augment_examples)
    if counts != [len(indices)] * 2:
        raise EquipoiseError(
            "workload-invalid",
            f"{description} made {counts[0]} inputs and {counts[1]} targets of {pluralize(len(indices), 'example')}",
            "it must change examples, and keep their number",
        )
    return new_inputs, new_targets


def require_gradient(name: str, model: nn.Module, loss: Tensor) -> None:
    """Refuse a loss from which no gradient reaches the weights, such as one that is computed without gradients."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if loss.requires_grad:
        call_user_code(f"{name}: the gradient of its loss", loss.backward)
    if all(weight.grad is None for weight in weights):
        raise EquipoiseError(
            "workload-invalid",
            f"{name}: its loss has no gradient for any weight of the model",
            "compute it from the outputs, without detach(), item() or torch.no_grad()",
        )


def refuse_single_values(model: nn.Module, inputs: Batch) -> None:
    """Make the model refuse to normalize a single value per channel."""

    def require_two_values(layer: nn.Module, layer_inputs: tuple[Tensor, ...]) -> None:
        if layer_inputs[0].numel() == layer_inputs[0].shape[1]:
            raise EquipoiseError(
                "model-invalid",
                f"the model cannot train with --batch-size 1 on inputs of {describe_shapes(inputs)}: a batch norm of it"
                " gets one value per channel, which has no variance",
                "give a larger --batch-size",
            )

    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.register_forward_pre_hook(require_two_values)


def describe_shapes(batch: Any) -> str:
    """Describe the shape of one example: of a tensor as (3, 32, 32), of several tensors one after another."""
    shapes = [str(tuple(tensor.shape[1:])) for tensor in list_tensors(batch)]
    return " and ".join(shapes) or f"a {type(batch).__name__}"
