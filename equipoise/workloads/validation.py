"""Tries a workload before anything is started for it, so that what is wrong with it is said in one sentence."""

import math
import traceback
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from equipoise.config import Trial
from equipoise.formatting import first_line
from equipoise.workloads.base import Split, Workload

PARTS = ("train", "validation", "reference", "test")


def attempt(name: str, maker: Callable[[], object]) -> object:
    """What a user's code returns; whatever it raises becomes a sentence that says where."""
    try:
        return maker()
    except (Exception, SystemExit) as error:
        if isinstance(error, ValueError) and (told := " ".join(str(error).split())):
            raise ValueError(told) from error
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
        theirs = [frame for frame in frames if frame.filename != __file__]
        where = f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""
        raise ValueError(f"{name} raised {type(error).__name__}: {first_line(error, 'no message')}{where}") from error


def checked(made: object, trial: Trial) -> Workload:
    """`made`, if it is a workload whose parts fit each other and the trial."""
    name = trial.workload
    if not isinstance(made, Workload):
        raise ValueError(f"{name} made a {type(made).__name__}; it must return an equipoise.workloads.Workload")
    attempt(f"{name}: its classes", lambda: len(made.classes))
    for part in PARTS:
        what = f"{name}: its {part} split"
        attempt(what, partial(check_split, what, getattr(made, part), len(made.classes)))
    if trial.global_batch > len(made.train):
        raise ValueError(
            f"the global batch is {trial.global_batch} ({trial.workers} workers x {trial.batch} x {trial.accumulate}), "
            f"but the training split of {name} holds {len(made.train)} examples: choose a smaller --batch"
        )
    if not isinstance(made.target, int | float) or not math.isfinite(made.target):
        raise ValueError(f"{name}: its target is {made.target!r}; it must be a finite number")
    attempt(f"{name}: its mean or std", lambda: check_scale(name, made))
    check_model(name, made)
    return made


def check_split(what: str, split: Split, classes: int) -> None:
    """Refuse a split whose labels do not fit its pictures or the classes."""
    labels = split.labels
    if not isinstance(labels, Tensor) or labels.dtype != torch.int64 or labels.ndim != 1:
        raise ValueError(f"{what} must have labels as a tensor of int64, one number a picture")
    if len(split.pictures) != len(labels):
        raise ValueError(f"{what} has {len(split.pictures)} pictures and {len(labels)} labels: give as many of both")
    if not len(labels):
        raise ValueError(f"{what} is empty: every split needs a picture at least")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise ValueError(f"{what} has labels from {low} to {high}, but there are {classes} classes: 0 to {classes - 1}")
    picture = split.pictures[0]
    if picture.dtype != torch.uint8 or picture.ndim != 3:
        raise ValueError(
            f"{what} must have pictures as uint8 (channels, height, width), got {picture.dtype} {tuple(picture.shape)}"
        )


def check_scale(name: str, made: Workload) -> None:
    """Refuse a mean or standard deviation that does not fit the channels."""
    channels = made.train.pictures[0].shape[0]
    for values, what in ((made.mean, "mean"), (made.std, "std")):
        if len(values) not in (1, channels) or not all(math.isfinite(value) for value in values):
            raise ValueError(f"{name}: its {what} is {values}; it needs a number for each of {channels} channels")
    if any(value <= 0 for value in made.std):
        raise ValueError(f"{name}: its std is {made.std}; every number must be above 0")


def check_model(name: str, made: Workload) -> None:
    """Refuse a model, loss or metric that does not take the pictures and labels."""
    labels = torch.stack([made.train.labels.min(), made.train.labels.max()])
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        model = attempt(f"{name}: its model()", made.model)
        if not isinstance(model, nn.Module):
            raise ValueError(f"{name}: its model() made a {type(model).__name__}; it must make a new torch.nn.Module")
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise ValueError(f"{name}: its model has nothing that learns: give it parameters that need a gradient")
        shapes = {tuple(getattr(made, part).pictures[0].shape) for part in PARTS[1:]}
        for shape in [*shapes, tuple(made.train.pictures[0].shape)]:
            logits = attempt(f"{name}: its model on pictures of {shape}", partial(scores, model, shape))
        if not isinstance(logits, Tensor) or len(logits) != 2:
            raise ValueError(f"{name}: its model must answer with a row of scores a picture")
        loss = attempt(f"{name}: its loss on scores of {tuple(logits.shape)}", lambda: made.loss(logits, labels))
        if not isinstance(loss, Tensor) or loss.ndim:
            raise ValueError(f"{name}: its loss must be one number, the mean over the batch")
        metric = attempt(f"{name}: its metric on scores of {tuple(logits.shape)}", lambda: made.metric(logits, labels))
        if not isinstance(metric, Tensor) or metric.shape != (2,) or not metric.isfinite().all():
            raise ValueError(f"{name}: its metric must be a finite number a picture, got {metric}")


def scores(model: nn.Module, shape: Sequence[int]) -> object:
    """What a model makes of two pictures of a shape."""
    return model.eval()(torch.rand(2, *shape))
