"""Check a workload before anything is started for it, and report what is wrong in one sentence."""

import math
import traceback
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from equipoise.config import OPTION_DEFAULTS, TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import first_error_line
from equipoise.storage.retry import StoreUnavailable
from equipoise.workloads.base import Split, Workload
from equipoise.workloads.batch import Batch, call_model, count_examples, list_tensors, map_tensors
from equipoise.workloads.image_validation import check_image_split, check_normalization, check_scores
from equipoise.workloads.image_workload import ImageWorkload

WORKLOAD_SPLITS = ("train", "validation", "reference", "test")
Result = TypeVar("Result")
STREAM_REMEDY = (
    "give a data set with __len__ and __getitem__: the examples of a step must not depend on the number of workers, and"
    " a stream has no example by its number"
)


def call_user_code(description: str, function: Callable[[], Result]) -> Result:
    """Return the result of a user's function; turn any exception into an EquipoiseError with a one-line message."""
    try:
        return function()
    except EquipoiseError as error:
        raise EquipoiseError(error.code, join_lines(error.problem), join_lines(error.remedy)) from error
    except StoreUnavailable:  # no mistake of the function
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ValueError) and (message := join_lines(str(error))):  # the user's own sentence
            raise EquipoiseError("workload-invalid", message) from error
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
        user_frames = [frame for frame in frames if frame.filename != __file__]
        location = f" ({user_frames[-1].filename}, line {user_frames[-1].lineno})" if user_frames else ""
        raise EquipoiseError(
            "workload-invalid",
            f"{description} raised {type(error).__name__}: {first_error_line(error, 'no message')}{location}",
        ) from error


def join_lines(text: str) -> str:
    """Return a text as one line, with single spaces."""
    return " ".join(text.split())


def validate_workload(workload: object, config: TrainConfig) -> Workload:
    """Return `workload` if its parts fit each other and the config; refuse it otherwise."""
    name = config.name
    if not isinstance(workload, Workload):
        raise EquipoiseError(
            "workload-invalid",
            f"{name} returned a {type(workload).__name__}",
            "it must return an equipoise.Workload, such as an equipoise.ImageWorkload",
        )
    call_user_code(f"{name}: its classes", lambda: len(workload.classes))
    for part in WORKLOAD_SPLITS:
        description = f"{name}: its {part} split"
        split = getattr(workload, part)
        call_user_code(description, partial(check_split, description, split, workload))
    if config.global_batch > len(workload.train):
        raise EquipoiseError(
            "workload-invalid",
            f"the global batch is {config.global_batch} ({config.workers} workers "
            f"x {config.batch_size} x {config.grad_accumulation}), "
            f"but the training split of {name} holds {len(workload.train)} examples",
            "choose a smaller --batch-size",
        )
    check_target(name, workload, config)
    check_defaults(name, workload)
    if isinstance(workload, ImageWorkload):
        call_user_code(f"{name}: its mean or std", partial(check_normalization, name, workload))
    check_model(name, workload, config)
    return workload


def check_target(name: str, workload: Workload, config: TrainConfig) -> None:
    """Refuse a target that is no number, and one of a workload for a metric in the other direction."""
    target = workload.target
    if target is not None and not (isinstance(target, int | float) and math.isfinite(target)):
        raise EquipoiseError(
            "workload-invalid", f"{name}: its target is {target!r}", "it must be a finite number or None"
        )
    if not isinstance(workload.lower_is_better, bool):
        raise EquipoiseError(
            "workload-invalid",
            f"{name}: its lower_is_better is {workload.lower_is_better!r}",
            "it must be True or False",
        )
    if config.lower_is_better and not workload.lower_is_better and target is not None and config.target is None:
        raise EquipoiseError(
            "option-conflict",
            f"cannot apply --lower-is-better to {name}: its target of {target:g} is for a metric that rises",
            "give --target, or set lower_is_better of the workload",
        )


def check_defaults(name: str, workload: Workload) -> None:
    """Refuse defaults that are no options of training, or whose values these do not take."""
    known = {field.name for field in fields(TrainConfig)} & {*OPTION_DEFAULTS, "warmup_examples", "eval_every"}
    defaults = call_user_code(f"{name}: its defaults", lambda: dict(workload.defaults))
    if unknown := sorted(set(defaults) - known):
        raise EquipoiseError(
            "workload-invalid",
            f"{name}: its defaults have {unknown[0]!r}",
            f"choose among {', '.join(sorted(known))}",
        )
    call_user_code(f"{name}: its defaults", lambda: TrainConfig(workload=name, **defaults))


def check_split(description: str, split: Split, workload: Workload) -> None:
    """Refuse a split without examples, with parts of different lengths or numbers that are not finite, or a stream."""
    if not split.is_in_memory and not (hasattr(split.inputs, "__len__") and hasattr(split.inputs, "__getitem__")):
        raise EquipoiseError(
            "workload-invalid",
            f"{description} is a {type(split.inputs).__name__}, which cannot be read at any place",
            STREAM_REMEDY,
        )
    if not len(split):
        raise EquipoiseError("workload-invalid", f"{description} is empty", "every split needs at least one example")
    if isinstance(workload, ImageWorkload):
        check_image_split(description, split, len(workload.classes))
    lengths = {"targets": len(split), "inputs": len(split) if split.targets is None else len_of_inputs(split)}
    if lengths["inputs"] != lengths["targets"]:
        raise EquipoiseError(
            "workload-invalid",
            f"{description} has {lengths['inputs']} inputs and {lengths['targets']} targets",
            "give one target for each input",
        )
    if split.is_in_memory:
        for kind, batch in (("inputs", split.inputs), ("targets", split.targets)):
            for tensor in list_tensors(batch):
                check_rows(f"{description} has {kind}", tensor, len(split))


def len_of_inputs(split: Split) -> int:
    """Return the number of inputs of a split that has targets beside them."""
    return count_examples(split.inputs) if split.is_in_memory else len(split.inputs)


def check_rows(description: str, tensor: Tensor, count: int) -> None:
    """Refuse a tensor without one row for each example, or with a number that is not finite."""
    if tensor.ndim == 0 or (len(tensor) != count):
        raise EquipoiseError(
            "workload-invalid",
            f"{description} as a tensor of {tuple(tensor.shape)}",
            f"its first dimension must be the {count} examples",
        )
    if tensor.is_floating_point() and not (finite := tensor.isfinite().flatten(1 - (tensor.ndim == 1))).all():
        row = int(torch.nonzero(~finite)[0, 0])
        raise EquipoiseError(
            "workload-invalid",
            f"{description} that are not finite numbers: the first is in example {row}",
            "replace or leave out such examples",
        )


def check_model(name: str, workload: Workload, config: TrainConfig) -> None:
    """Refuse a model, loss or metric that does not fit the examples or the batch size."""
    if isinstance(workload.model, nn.Module):  # calling it would run the model
        raise EquipoiseError(
            "workload-invalid",
            f"{name}: its model is a {type(workload.model).__name__}, and each run needs a new one",
            "give a function that builds it, such as model=lambda: MyModel(), or the class MyModel itself",
        )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        model = call_user_code(f"{name}: its model()", workload.model)
        if not isinstance(model, nn.Module):
            raise EquipoiseError(
                "workload-invalid",
                f"{name}: its model() returned a {type(model).__name__}",
                "it must return a new torch.nn.Module",
            )
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise EquipoiseError(
                "workload-invalid",
                f"{name}: its model has no trainable parameters",
                "give it some that require a gradient",
            )
        for part in reversed(WORKLOAD_SPLITS):
            description = f"{name}: its {part} split"
            examples = call_user_code(description, partial(read_two_examples, workload, getattr(workload, part)))
            check_outputs(name, workload, model, *examples)
        if config.batch_size == 1 and config.freeze_stages == 0:  # frozen layers normalize by constants
            inputs = map_tensors(examples[0], lambda tensor: tensor[:1])
            call_user_code(f"{name}: its model in training on one example", partial(check_batch_norm, model, inputs))


def read_two_examples(workload: Workload, split: Split) -> tuple[Batch, Batch]:
    """Return two examples as the model and the loss take them, with the lowest and highest label if they have some."""
    inputs, targets = split.read_examples([0, min(1, len(split) - 1)])
    labels = split.targets
    if isinstance(labels, Tensor) and labels.dtype == torch.int64 and labels.ndim == 1:
        targets = torch.stack([labels.min(), labels.max()])
    return workload.input_transform(torch.device("cpu"), torch.float32)(inputs), targets


def check_outputs(name: str, workload: Workload, model: nn.Module, inputs: Batch, targets: Batch) -> None:
    """Refuse a model that does not take two examples, and a loss or metric that does not take its outputs."""
    shapes = describe_shapes(inputs)
    outputs = call_user_code(f"{name}: its model on inputs of {shapes}", lambda: call_model(model.eval(), inputs))
    if isinstance(workload, ImageWorkload):
        check_scores(name, outputs)
    shapes = describe_shapes(outputs)
    loss = call_user_code(f"{name}: its loss on outputs of {shapes}", lambda: workload.loss(outputs, targets))
    if not isinstance(loss, Tensor) or loss.ndim:
        raise EquipoiseError("workload-invalid", f"{name}: its loss must be one number, the mean over the batch")
    rows = call_user_code(f"{name}: its metric on outputs of {shapes}", lambda: workload.metric(outputs, targets))
    if not isinstance(rows, Tensor) or rows.shape[:1] != (2,) or rows.ndim > 2 or not rows.isfinite().all():
        found = f"shape {tuple(rows.shape)}: {rows}" if isinstance(rows, Tensor) else f"a {type(rows).__name__}"
        raise EquipoiseError(
            "workload-invalid",
            f"{name}: its metric must be one finite number per example, got {found} for two examples",
            "return a tensor of (examples,), or of (examples, values) with a score",
        )
    if rows.ndim == 2 and workload.score is None:
        raise EquipoiseError(
            "workload-invalid",
            f"{name}: its metric has {rows.shape[1]} values per example and it has no score",
            "give score, which makes one number of the rows of all examples",
        )


def describe_shapes(batch: Any) -> str:
    """Describe the shape of one example: of a tensor as (3, 32, 32), of several tensors one after another."""
    shapes = [str(tuple(tensor.shape[1:])) for tensor in list_tensors(batch)]
    return " and ".join(shapes) or f"a {type(batch).__name__}"


def check_batch_norm(model: nn.Module, inputs: Batch) -> None:
    """Refuse a model that normalizes a single value per channel when it trains on one example."""

    def require_two_values(layer: nn.Module, layer_inputs: tuple[Tensor, ...]) -> None:
        if layer_inputs[0].numel() == layer_inputs[0].shape[1]:
            raise EquipoiseError(
                "model-invalid",
                f"the model cannot train with --batch-size 1 on inputs of {describe_shapes(inputs)}: a batch norm of it"
                " gets one value per channel, which has no variance",
                "give a larger --batch-size or --image-size",
            )

    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.register_forward_pre_hook(require_two_values)
    call_model(model.train(), inputs)
