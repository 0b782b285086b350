"""Check a workload before anything is started for it, and report what is wrong in one sentence."""

import math
import traceback
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import first_error_line
from equipoise.storage.retry import StoreUnavailable
from equipoise.workloads.base import Split, Workload

WORKLOAD_SPLITS = ("train", "validation", "reference", "test")


def call_user_code(description: str, function: Callable[[], object]) -> object:
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
            "it must return an equipoise.workloads.Workload",
        )
    call_user_code(f"{name}: its classes", lambda: len(workload.classes))
    for part in WORKLOAD_SPLITS:
        description = f"{name}: its {part} split"
        split = getattr(workload, part)
        call_user_code(description, partial(check_split, description, split, len(workload.classes)))
    if config.global_batch > len(workload.train):
        raise EquipoiseError(
            "workload-invalid",
            f"the global batch is {config.global_batch} ({config.workers} workers "
            f"x {config.batch_size} x {config.grad_accumulation}), "
            f"but the training split of {name} holds {len(workload.train)} examples",
            "choose a smaller --batch-size",
        )
    check_target(name, workload, config)
    call_user_code(f"{name}: its mean or std", lambda: check_normalization(name, workload))
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


def check_split(description: str, split: Split, class_count: int) -> None:
    """Refuse a split whose labels do not fit its images or the classes."""
    labels = split.labels
    if not isinstance(labels, Tensor) or labels.dtype != torch.int64 or labels.ndim != 1:
        raise EquipoiseError(
            "workload-invalid", f"{description} must have labels as a tensor of int64, one number per image"
        )
    if len(split.pictures) != len(labels):
        raise EquipoiseError(
            "workload-invalid",
            f"{description} has {len(split.pictures)} images and {len(labels)} labels",
            "give one label per image",
        )
    if not len(labels):
        raise EquipoiseError("workload-invalid", f"{description} is empty", "every split needs at least one image")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= class_count:
        raise EquipoiseError(
            "workload-invalid",
            f"{description} has labels from {low} to {high}, but there are "
            f"{class_count} classes: 0 to {class_count - 1}",
        )
    picture = split.pictures[0]
    if picture.dtype != torch.uint8 or picture.ndim != 3:
        raise EquipoiseError(
            "workload-invalid",
            f"{description} must have images as uint8 (channels, height, "
            f"width), got {picture.dtype} {tuple(picture.shape)}",
        )


def check_normalization(name: str, workload: Workload) -> None:
    """Refuse a mean or standard deviation that does not fit the channels."""
    channels = workload.train.pictures[0].shape[0]
    for values, quantity in ((workload.mean, "mean"), (workload.std, "std")):
        if len(values) not in (1, channels) or not all(math.isfinite(value) for value in values):
            raise EquipoiseError(
                "workload-invalid",
                f"{name}: its {quantity} is {values}",
                f"it needs one finite number, or one per channel: the images have {channels} channels",
            )
    if any(value <= 0 for value in workload.std):
        raise EquipoiseError("workload-invalid", f"{name}: its std is {workload.std}", "every number must be above 0")


def check_model(name: str, workload: Workload, config: TrainConfig) -> None:
    """Refuse a model, loss or metric that does not fit the images, the labels or the batch size."""
    if isinstance(workload.model, nn.Module):  # calling it would run the model
        raise EquipoiseError(
            "workload-invalid",
            f"{name}: its model is a {type(workload.model).__name__}, and each run needs a new one",
            "give a function that builds it, such as model=lambda: MyModel(), or the class MyModel itself",
        )
    labels = torch.stack([workload.train.labels.min(), workload.train.labels.max()])
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
        shapes = {tuple(getattr(workload, part).pictures[0].shape) for part in WORKLOAD_SPLITS[1:]}
        for shape in [*shapes, tuple(workload.train.pictures[0].shape)]:
            logits = call_user_code(f"{name}: its model on images of {shape}", partial(probe_model, model, shape))
        if config.batch_size == 1 and config.freeze_stages == 0:  # frozen layers normalize by constants
            call_user_code(f"{name}: its model in training on one image", partial(check_batch_norm, model, shape))
        if not isinstance(logits, Tensor) or len(logits) != 2:
            raise EquipoiseError("workload-invalid", f"{name}: its model must return one row of scores per image")
        loss = call_user_code(
            f"{name}: its loss on scores of {tuple(logits.shape)}", lambda: workload.loss(logits, labels)
        )
        if not isinstance(loss, Tensor) or loss.ndim:
            raise EquipoiseError("workload-invalid", f"{name}: its loss must be one number, the mean over the batch")
        metric = call_user_code(
            f"{name}: its metric on scores of {tuple(logits.shape)}", lambda: workload.metric(logits, labels)
        )
        if not isinstance(metric, Tensor) or metric.shape != (2,) or not metric.isfinite().all():
            raise EquipoiseError(
                "workload-invalid", f"{name}: its metric must be one finite number per image, got {metric}"
            )


def probe_model(model: nn.Module, shape: Sequence[int]) -> object:
    """Run a model in evaluation mode on two random images of a shape."""
    return model.eval()(torch.rand(2, *shape))


def check_batch_norm(model: nn.Module, shape: Sequence[int]) -> None:
    """Refuse a model that normalizes a single value per channel when it trains on one image of a shape."""

    def require_two_values(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if inputs[0].numel() == inputs[0].shape[1]:
            raise EquipoiseError(
                "model-invalid",
                f"the model cannot train with --batch-size 1 on images of {tuple(shape)}: a batch norm of it gets one"
                " value per channel, which has no variance",
                "give a larger --batch-size or --image-size",
            )

    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.register_forward_pre_hook(require_two_values)
    model.train()(torch.rand(1, *shape))
